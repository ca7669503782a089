// Signal: the size against which a bound is called vacuous (accuracy standard 5.5): the greater of |truth| of the
// element and the root mean square of its row (the V channels of one token and head, or of one state row; of a stage or a layer its last axis). One small
// element of a healthy row is still judged well by a bound that is small beside the row.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/truth.h"

namespace gdn {

class Signal {
 public:
  explicit Signal(const TruthTensor& t, bool rows = false) : truth_(t), width_(t.shape.size() > 2 || rows ? std::max<std::int64_t>(1, t.shape.back()) : 1) {
    rms_.resize(t.hi.size() / static_cast<std::size_t>(width_));
    for (std::size_t r = 0; r < rms_.size(); ++r) {
      double sum = 0;
      for (std::size_t c = r * static_cast<std::size_t>(width_); c < (r + 1) * static_cast<std::size_t>(width_); ++c) sum += t.hi[c] * t.hi[c];
      rms_[r] = std::sqrt(sum / static_cast<double>(width_));
    }
  }
  double at(std::int64_t e) const { return std::max(std::fabs(truth_.hi[static_cast<std::size_t>(e)]), rms_[static_cast<std::size_t>(e / width_)]); }

 private:
  const TruthTensor& truth_;
  std::int64_t width_;
  std::vector<double> rms_;
};

}  // namespace gdn
