// Problems and case ids: the text form parses and prints itself; wrong text is refused with the reason.
#include "reference/case.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("canonical problem texts are fixed points") {
  for (const char* text : {
           "prefill/n1_t257_h2_hv4_k128_v64/bf16/h0", "prefill/n3_t64+0+1_h1_hv2_k64_v64/fp32/h0,split=17",
           "prefill/n5_t3x2+1+0x2_h1_hv1_k16_v16/fp16/noht,g=bf16,beta=bf16,state=bf16,pad=7",
           "prefill/n2_t0_h1_hv1_k1_v1/fp32", "decode/n4_t1_h16_hv32_k128_v128/bf16/h0,slots=4",
           "verify/n2_t9_h1_hv2_k16_v16/fp32/h0,state=bf16,slots=3,draft=4", "verify/n2_t4_h1_hv2_k16_v16/fp32/h0,slots=3,draft=4",
           "prefill/n1_t9_h1_hv1_k16_v16/fp32/split=1.2.9,rule=kda,scale=0x1p-3"}) {
    CHECK(to_string(parse_problem(text)) == text);
    CHECK(parse_problem(to_string(parse_problem(text))) == parse_problem(text));
  }
}

TEST_CASE("wrong problem texts are refused") {
  for (const char* text : {"", "prefill", "prefill/n1_t2_h2_hv3_k8_v8/bf16", "prefill/n1_t2_h1_hv1_k0_v8/bf16",
                           "prefill/n2_t1+2+3_h1_hv1_k8_v8/bf16", "prefill/n1_t-1_h1_hv1_k8_v8/bf16",
                           "prefill/n1_t1_h1_hv1_k8_v8/int32", "prefill/n1_t1_h1_hv1_k8_v8/bf16/nonsense",
                           "prefill/n1_t1_h1_hv1_k8_v8/bf16/split=3.2", "jump/n1_t1_h1_hv1_k8_v8/bf16",
                           "prefill/n1_t9999999999999_h1_hv1_k8_v8/bf16", "prefill/n1_t1_h1_hv1_k8_v8/bf16/scale=0",
                           "decode/n2_t1_h1_hv1_k8_v8/bf16/h0", "decode/n2_t1_h1_hv1_k8_v8/bf16/slots=2", "decode/n2_t1+2_h1_hv1_k8_v8/bf16/h0,slots=2",
                           "decode/n2_t2_h1_hv1_k8_v8/bf16/h0,slots=2,split=1", "prefill/n2_t1_h1_hv1_k8_v8/bf16/h0,slots=2",
                           "verify/n2_t4_h1_hv1_k8_v8/bf16/h0,slots=2", "verify/n2_t6_h1_hv1_k8_v8/bf16/h0,slots=2,draft=4",
                           "decode/n2_t0_h1_hv1_k8_v8/bf16/h0,slots=2"})
    CHECK_THROWS_AS(parse_problem(text), std::invalid_argument);
}

TEST_CASE("case ids") {
  const CaseId id = parse_case_id("typical:prefill/n1_t257_h2_hv4_k128_v64/bf16/h0:7");
  CHECK(id.family == "typical");
  CHECK(id.seed == 7);
  CHECK_THROWS_AS(parse_case_id("typical:prefill/n1_t1_h1_hv1_k8_v8/bf16:x"), std::invalid_argument);
}
