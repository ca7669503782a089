// The edition of the accuracy standard (reference/README.md) that this build judges by.
#pragma once

namespace gdn {
inline constexpr const char* kAccuracyEdition = "2026.1";
inline constexpr const char* kSuiteVersion = "0.1.0";
}  // namespace gdn
