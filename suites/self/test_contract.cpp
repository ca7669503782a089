// Contracts: the text form is canonical and parses itself, wrong text is refused in one line, presets list every point.
#include <string>

#include "reference/contract.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("presets print as their names and parse back") {
  const auto names = contract_presets();
  CHECK(names.size() == 10);
  for (const std::string& name : names) {
    const Contract c = parse_contract(name);
    CHECK(to_string(c) == name);
    CHECK(c.preset == name);
    CHECK((c.form == Form::recurrent) == (c.chunk == 1));
    const std::string text = explain(c);
    for (std::size_t i = 0; i < kPoints; ++i) CHECK(text.find("\n  " + std::string(gdn::name(static_cast<Point>(i))) + " ") != std::string::npos);
  }
}

TEST_CASE("overrides are canonical whatever their order") {
  for (const char* text : {
           "bf16-chunk;M=fp32;chunk=32;gate_sum=prefix_seq;g_min=-80", "fp32-chunk;out=bf16/rz/flush;solve=neumann;vectors=residual;cadence=call",
           "fp32-recurrent;S_carried=tf32x3;cadence=call;fma=yes;u_exp=1e-06", "fp32-recurrent;form=chunkwise;chunk=16;cadence=chunk",
           "bf16-chunk;accumulator=tensor_core;block=8;gate_sum=prefix_tree"}) {
    CHECK(to_string(parse_contract(text)) == text);
    CHECK(parse_contract(to_string(parse_contract(text))) == parse_contract(text));
  }
  CHECK(to_string(parse_contract("bf16-chunk;g_min=-8e1;gate_sum=prefix_seq;chunk=32;M=fp32/rne/keep")) == "bf16-chunk;M=fp32;chunk=32;gate_sum=prefix_seq;g_min=-80");
  CHECK(to_string(parse_contract("bf16-chunk;M=bf16;chunk=64;g_min=-inf")) == "bf16-chunk");
  CHECK(to_string(parse_contract("bf16-chunk;u_exp=-0")) == "bf16-chunk");
}

TEST_CASE("wrong contract texts are refused in one line that names the cause") {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "unknown preset ''"}, {"bf16", "unknown preset 'bf16'"}, {"bf16-chunk;", "'' is not key=value"}, {"bf16-chunk;M", "'M' is not key=value"},
      {"bf16-chunk;;M=bf16", "'' is not key=value"}, {"bf16-chunk;m=fp32", "unknown key 'm'"}, {"bf16-chunk;preset=fp32-chunk", "unknown key 'preset'"},
      {"bf16-chunk;M=fp33", "M: unknown format 'fp33'"}, {"bf16-chunk;M=fp32/up", "unknown rounding 'up'"}, {"bf16-chunk;M=fp32;M=fp32", "'M' is given twice"},
      {"bf16-chunk;chunk=0", "chunk needs a whole number"}, {"bf16-chunk;chunk=64.5", "chunk needs a whole number"}, {"bf16-chunk;chunk=", "chunk needs"},
      {"bf16-chunk;chunk=99999999999", "chunk needs"}, {"bf16-chunk;solve=inverse", "solve is one of substitution, block_inverse, neumann"},
      {"bf16-chunk;g_min=1", "g_min must not be positive"}, {"bf16-chunk;g_min=nan", "g_min needs a number"}, {"bf16-chunk;u_exp=2", "u_exp lies"},
      {"bf16-chunk;fma=1", "fma is one of no, yes"}, {"bf16-chunk; M=fp32", "unknown key ' M'"}, {"fp32-recurrent;chunk=64", "recurrent form has chunk=1"},
      {"fp32-recurrent;cadence=chunk", "per token or per call"}, {"fp32-chunk;cadence=token", "no state per token"}, {"bf16-chunk;form=recurrent", "chunk=1"}};
  for (const auto& [text, part] : wrong) {
    std::string message;
    try {
      parse_contract(text);
    } catch (const std::invalid_argument& e) {
      message = e.what();
    }
    INFO(text << " -> " << message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  Contract c;
  CHECK_THROWS_AS(to_string(c), std::invalid_argument);
}

TEST_CASE("a problem narrows what leaves the kernel and nothing else") {
  const Problem bf16 = parse_problem("prefill/n1_t9_h1_hv1_k16_v16/bf16/state=fp16"), fp32 = parse_problem("prefill/n1_t9_h1_hv1_k16_v16/fp32");
  CHECK(to_string(for_problem(parse_contract("fp32-chunk"), bf16)) == "fp32-chunk;out=bf16;ht=fp16");
  CHECK(to_string(for_problem(parse_contract("fp32-chunk"), fp32)) == "fp32-chunk");
  CHECK(to_string(for_problem(parse_contract("bf16-chunk"), fp32)) == "bf16-chunk");
  CHECK(to_string(for_problem(parse_contract("fp16-chunk"), bf16)) == "fp16-chunk;out=bf16;ht=fp16");
  CHECK(to_string(for_problem(parse_contract("fp64-recurrent"), fp32)) == "fp64-recurrent;out=fp32;ht=fp32");
  CHECK(to_string(for_problem(parse_contract("fp32-chunk;out=fp32/rz"), bf16)) == "fp32-chunk;out=bf16/rz;ht=fp16");
  CHECK(for_problem(for_problem(parse_contract("bf16-state"), bf16), bf16) == for_problem(parse_contract("bf16-state"), bf16));
}

TEST_CASE("units: what a store costs beside the arithmetic") {
  const Contract c = parse_contract("bf16-chunk;U=tf32x3;W=fp32/rz;P=fp32/flush");
  CHECK(unit(c, Point::M) == 0x1p-8);
  CHECK(unit(c, Point::U) == 0);
  CHECK(unit(c, Point::W) == 0);
  CHECK(unit(c, Point::P) == 0);
  CHECK(underflow(c, Point::P) == 0x1p-126);
  CHECK(underflow(c, Point::W) == 0);
  CHECK(underflow(c, Point::M) == 0x1p-134);
  CHECK(unit(c, Point::S_carried) == 0);
  CHECK(unit(parse_contract("fp32-chunk;M=bf16"), Point::M) == 0);    // substitution forms no M
  CHECK(unit(parse_contract("fp64-recurrent;D=fp32"), Point::D) == 0x1p-24);
}
