// Strict mode: the textbook's input rules, each broken by itself, and kept.
#include <cmath>
#include <limits>

#include "reference/strict.h"
#include "suites/families/fill.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
Run textbook(const char* problem) {
  const Problem p = parse_problem(problem);
  fill::Style style;
  style.keys = {fill::Keys::random};
  style.gates = {fill::Gates::mild};
  style.betas = {fill::Betas::unit};
  return {"base", p, fill::inputs(p, 1, style), true};
}
}  // namespace

TEST_CASE("inputs inside the rules pass, in every dtype, with padding, pools and resets") {
  for (const char* problem : {"prefill/n2_t5+3_h1_hv2_k16_v8/fp32/h0,pad=2", "prefill/n1_t9_h2_hv2_k32_v4/bf16", "prefill/n1_t9_h1_hv1_k64_v4/fp16/h0", "decode/n2_t3_h1_hv2_k16_v8/fp32/h0,slots=4"}) {
    CAPTURE(problem);
    CHECK(strict_complaint(textbook(problem)) == "");
  }
  Run reset = textbook("prefill/n1_t4_h1_hv1_k16_v4/fp32");
  reset.inputs.at("g").set(2, -std::numeric_limits<double>::infinity());
  CHECK(strict_complaint(reset) == "");
}

TEST_CASE("every rule has its line") {
  const auto broken = [](const char* tensor, std::int64_t element, double x) {
    Run run = textbook("prefill/n1_t4_h1_hv1_k16_v4/fp32/h0");
    run.inputs.at(tensor).set(element, x);
    return strict_complaint(run);
  };
  const double nan = std::nan("");
  CHECK(broken("q", 17, nan) == "strict: q of token 1, element 1 is nan: inputs are finite");
  CHECK(broken("v", 5, -std::numeric_limits<double>::infinity()).find("strict: v of token 1, element 1 is -inf") == 0);
  CHECK(broken("h0", 3, nan).find("strict: h0 of state 0, element 3 is nan") == 0);
  CHECK(broken("g", 2, 0.5) == "strict: g of token 2, element 0 is 0.5: a decay lies in 0..1, so g is at most 0");
  CHECK(broken("g", 2, nan).find("strict: g of token 2") == 0);
  CHECK(broken("beta", 3, 1.5) == "strict: beta of token 3, element 0 is 1.5: a write strength lies in 0..1");
  CHECK(broken("beta", 3, -0.25).find("strict: beta of token 3") == 0);
  CHECK(broken("k", 0, 2).find("strict: |k|^2 of token 0, element 0 is ") == 0);
  Run shape = textbook("prefill/n1_t4_h1_hv1_k16_v4/fp32");
  shape.inputs.at("v").shape = {4, 4, 1};
  CHECK(strict_complaint(shape) == "strict: v has shape [4,4,1], the problem needs [4,1,4]");
  Run layer;
  layer.problem = parse_problem("layer_prefill/n1_t2_h1_hv1_k4_v4/fp32/hidden=4,conv=4");
  CHECK_THROWS_AS(strict_complaint(layer), std::invalid_argument);
}
