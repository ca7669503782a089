// Faults of the harness itself: ways in which a test suite lets wrong results through. Each is a decorated set of checks
// (or an empty gate), used only to prove that the suite notices; nothing outside tests and the power study reaches them.
#pragma once
#include <string>
#include <vector>

namespace gdn {

struct HarnessFault {
  const char* name;
  const char* mechanism;
  // Runs the sentinels (a few faults of the bank and the twin on small cases) with the fault in the harness. Empty when
  // nothing was noticed, else what was: a sentinel that lives, a twin that fails, a gate that refuses to pass.
  std::string (*noticed)();
};
const std::vector<HarnessFault>& harness_faults();
// The same with a healthy harness: empty when, as it must be, nothing is to be noticed.
std::string harness_healthy();

}  // namespace gdn
