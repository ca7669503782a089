// Which elements of a run's outputs may be judged (accuracy standard 2.2, 2.3, 2.6), and how one is shown.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "suites/check.h"

namespace gdn {

enum class Standing : std::uint8_t {
  judged,
  tainted,   // a non-finite input may reach it: must be written, may hold anything
  unowned,   // padding, rows without a sequence, slots of a pool that nobody uses (soundness compares their bits), or
             // the final state of an empty sequence where the kernel declares it untouched
};

// One entry per element of the outputs of the run; empty for outputs that it does not have.
struct Standings {
  std::vector<Standing> o, ht, snapshots;
  std::map<std::string, std::vector<Standing>, std::less<>> stage;   // outputs of a stage or a layer
  const std::vector<Standing>& of(std::string_view tensor) const {
    if (const auto at = stage.find(tensor); at != stage.end()) return at->second;
    return tensor == "o" ? o : tensor == "ht" ? ht : snapshots;
  }
};
Standings standings(const Run& run, const KernelInfo& kernel);

Format format_of(DType t);                         // of a floating dtype
// hi + lo (|lo| at most half an ulp of hi) rounded once to the format, to nearest even.
double rounded(double hi, double lo, Format f);
double ulp_at(double x, Format f);                 // spacing of the format at |x|

// An infinity where the exact value, widened by bound and radius, passes the greatest finite number (2.4); NaN as well where
// the bound is infinite.
bool overflow_allowed(double got, double hi, double bound, double radius, Format f);

// The format whose greatest number o or ht may pass: the contract's last store, where that is narrower than the tensor.
Format overflow_format(const CheckInput& in, std::size_t run, std::string_view tensor);

// Everything a person wants to see of one element. got: the kernel's tensor.
Finding finding(const CheckInput& in, std::size_t run, std::string_view tensor, std::int64_t element, double bound);
// Bound of an element of a run, from CheckInput::bounds.
double bound_of(const CheckInput& in, std::size_t run, std::string_view tensor, std::int64_t element);

}  // namespace gdn
