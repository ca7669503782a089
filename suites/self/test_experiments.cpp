// The memory experiments give what the texts print, where that is right, and what is wrong in them shows.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "reports/file.h"
#include "suites/experiments.h"
#include "suites/hybrid.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
std::string three(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", x);
  return text;
}
}  // namespace

TEST_CASE("printed numbers are met digit for digit") {
  // Capacity, the two tables.
  const struct { const char* n; const char* delta; const char* sum; } random[] = {
      {"1", "1.000", "1.000"}, {"4", "0.967", "0.934"}, {"8", "0.774", "0.802"}, {"16", "0.715", "0.732"}, {"32", "0.472", "0.625"}, {"64", "0.231", "0.438"}};
  REQUIRE(capacity_numbers().size() == 2048);
  for (const auto& r : random) {
    CHECK(three(experiment("capacity_random").at(r.n, "delta")) == r.delta);
    CHECK(three(experiment("capacity_random").at(r.n, "sum")) == r.sum);
  }
  for (const char* n : {"1", "4", "8", "12", "16"})
    for (const char* rule : {"delta", "sum"}) CHECK(three(experiment("capacity_orthogonal").at(n, rule)) == "1.000");
  // Overwriting: read with the key just written.
  const Experiment& o = experiment("overwrite");
  CHECK(o.rows[0].values == std::vector<double>{10, 0, 0, 0, 10, 0, 0, 0});
  CHECK(o.rows[1].values == std::vector<double>{0, -5, 0, 0, 0, -5, 0, 0});
  CHECK(o.rows[2].values == std::vector<double>{10, 0, 99, 0, 0, 0, 99, 0});
  // Decay over idle steps.
  const Experiment& d = experiment("decay");
  CHECK(three(d.at("0", "read")) == "10.000");
  CHECK(three(d.at("1", "read")) == "9.000");
  CHECK(three(d.at("5", "read")) == "5.905");
  CHECK(three(d.at("10", "read")) == "3.487");
  CHECK(three(d.at("20", "read")) == "1.216");
  // The two cells.
  const Experiment& c = experiment("two_cells");
  CHECK(c.rows[0].values == std::vector<double>{2.25, 5});
  CHECK(c.rows[1].values == std::vector<double>{2, 5});
  CHECK(c.at("1, 1", "cell 0") == 6);
  CHECK(c.at("1, 1", "cell 1") == 10);
  // 1 MiB of state, 64 MiB of keys and values.
  CHECK(experiment("state_size").at("8192", "state") == 1);
  CHECK(experiment("state_size").at("8192", "KV cache") == 64);
}

TEST_CASE("the rule is a gradient step of size beta at the decayed state, and of no other kind") {
  const Experiment& e = experiment("gradient_step");
  CHECK(e.at("alpha S, beta", "greatest difference") < 1e-14);
  for (const char* other : {"alpha S, alpha beta", "S, beta", "S, alpha beta"}) CHECK(e.at(other, "greatest difference") > 0.05);
}

TEST_CASE("steps compose in order, constant gates converge, gates have two forms") {
  const Experiment& c = experiment("composition");
  CHECK(c.rows[0].values[0] < 1e-14);
  for (std::size_t i = 1; i < c.rows.size(); ++i) CHECK(c.rows[i].values[0] > 0.01);
  const Experiment& f = experiment("fixed_point");
  CHECK(std::fabs(f.rows.back().values[0] - f.rows.back().values[1]) < 1e-12);
  CHECK(std::fabs(f.rows.back().values[1] - 3 / 0.55) < 1e-14);
  CHECK(f.rows[5].values[0] < f.rows.back().values[0] - 1e-3);
  const Experiment& g = experiment("gate_forms");
  for (const ExperimentRow& r : g.rows) CHECK(std::fabs(r.values[0] - r.values[1]) <= 4e-16 * r.values[0]);
  CHECK(g.at("100", "A_log -8") > 0.9);
  CHECK(g.at("100", "A_log -8, log1p(exp(x)) in fp32") == 0);
}

TEST_CASE("an item among noise is kept by gates that are chosen, and by the gated delta rule best") {
  const Experiment& e = experiment("retention");
  for (const char* lost : {"sum", "decay 0.9", "delta", "gated delta 0.9"}) CHECK(e.at("200", lost) > 0.9);
  CHECK(e.at("200", "gated delta chosen") < 0.6);
  CHECK(e.at("0", "gated delta chosen") < 1e-14);
  CHECK(e.at("0", "delta") < 1e-12);               // replaces whatever noise has left there
  CHECK(e.at("0", "sum") > 0.5);
}

TEST_CASE("a chunkwise form without correction is another rule, and keys that are no unit vectors are another memory") {
  const Experiment& p = experiment("pseudocode");
  CHECK(p.at("gated linear attention, beta 1", "first chunk") < 1e-12);
  CHECK(p.at("gated linear attention, beta 1", "second chunk") > 0.05);
  CHECK(p.at("gated delta rule, beta 1", "first chunk") > 0.05);
  const Experiment& k = experiment("long_keys");
  CHECK(std::fabs(k.at("1", "read / |k|^2 after one write") - 6) < 1e-12);
  CHECK(k.at("4", "left after 20 writes of 0") > 1e9);
}

// The layer that one text writes out, with its random numbers: the shapes and norms it prints are of another program.
TEST_CASE("shapes and norms printed beside a layer do not follow from it") {
  const std::string out = (std::filesystem::temp_directory_path() / ("gdn_walkthrough" + temporary_suffix())).string();
  const std::string python = "/usr/bin/python3";
  if (std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) != 0) {
    WARN("no numpy: not checked");
    return;
  }
  REQUIRE(std::system((python + " '" GDN_SOURCE_DIR "/suites/self/adapters/walkthrough.py' > '" + out + "'").c_str()) == 0);
  const std::string text = read_file(out);
  std::filesystem::remove(out);
  CHECK(text == "qkv (2048, 8192) z (2048, 4096) a (2048, 32) b (2048, 32) conv (8192, 4) A_log (32,)\nstate norm 0.031\nstate norm 0.076\nstate norm 0.101\n");
}

TEST_CASE("a hybrid stack gives the same numbers by prefill, resumed and decoded, within the bound, and only its attention's cache grows") {
  const Experiment& e = experiment("hybrid_paths");
  for (const char* path : {"one call", "resumed", "token by token"}) {
    CHECK(e.at(path, "other numbers") == 0);
    for (const char* layer : {"layer 1, error / bound", "layer 2", "layer 3", "attention"}) {
      CHECK(e.at(path, layer) <= 1);
      CHECK(e.at(path, layer) > 0);
    }
    CHECK(e.at(path, "greatest error") > 0);
    CHECK(e.at(path, "greatest error") < 1e-3);      // beside hidden states of about 1
  }
  const Experiment& c = experiment("hybrid_caches");
  for (const ExperimentRow& r : c.rows) {
    CHECK(r.values[0] == 3 * 4 * 8 * 8 * 4 / 1024.0);
    CHECK(r.values[1] == 3 * (2 * 2 * 8 + 4 * 8) * 3 * 4 / 1024.0);
    CHECK(r.values[2] == std::atof(r.label.c_str()) * 2 * 2 * 8 * 4 / 1024.0);
  }
}

TEST_CASE("the stack's oracle is what plain doubles give, and the attention's bound holds of the contract carried out and not of other weights") {
  const Stack s = drawn_stack(parse_problem("layer_prefill/n1_t6_h1_hv2_k4_v4/fp32/hidden=8,conv=3"), 3, 2, 4, 7);
  const auto truth = stack_oracle(s);
  const auto fine = simulate_stack(parse_contract("fp64-recurrent"), s);
  REQUIRE(truth.size() == 4);
  for (std::size_t layer = 0; layer < truth.size(); ++layer)
    for (std::size_t i = 0; i < truth[layer].hi.size(); ++i) {
      CAPTURE(layer, i);
      REQUIRE(std::fabs(fine[layer][i] - truth[layer].hi[i]) < 1e-5);       // operands of the rule pass through fp32
      REQUIRE(static_cast<double>(truth[layer].radius[i]) < 0x1p-44);      // far below the rounding of fp32
    }
  Stack last = s;
  last.layers.clear();
  Stack other = last;
  other.attention.at("w_k").set(0, other.attention.at("w_k").at(0) + 0.01);
  const TruthTensor exact = stack_oracle(last).back();
  const auto bound = stack_bound(parse_contract("fp32-recurrent"), last).back(), got = simulate_stack(parse_contract("fp32-recurrent"), last).back(),
             wrong = simulate_stack(parse_contract("fp32-recurrent"), other).back();
  bool seen = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    REQUIRE(std::fabs(got[i] - exact.hi[i]) <= bound[i]);
    seen = seen || std::fabs(wrong[i] - exact.hi[i]) > bound[i];
  }
  CHECK(seen);
}
