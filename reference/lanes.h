// The inner loops of simulation and bounds, over contiguous value channels: one body each, compiled for the base
// instruction set and for AVX2 and chosen at run time. Lanes never mix, sums run in ascending order and nothing is
// contracted, so the bits are the same either way.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/format.h"

namespace gdn::lanes {

#if defined(__x86_64__) && defined(__GNUC__)
#define GDN_AVX2 __attribute__((target("avx2")))
inline bool wide() {
  static const bool yes = __builtin_cpu_supports("avx2");
  return yes;
}
#else
#define GDN_AVX2
inline bool wide() { return false; }
#endif
#define GDN_BODY static inline __attribute__((always_inline)) void

template <class Body, class... A>
GDN_AVX2 void run_wide(A... a) { Body::run(a...); }
template <class Body, class... A>
void run_base(A... a) { Body::run(a...); }
template <class Body, class... A>
inline void run(A... a) {
  if (wide()) run_wide<Body>(a...);
  else run_base<Body>(a...);
}

using Index = std::int64_t;

// How one product is added to a sum.
struct Plain {
  template <class Real>
  static inline __attribute__((always_inline)) Real add(Real c, Real a, Real b) { return c + a * b; }
};
struct Fused {                                     // the product is exact in double; rounds once but for rare ties
  static inline __attribute__((always_inline)) float add(float c, float a, float b) {
    return static_cast<float>(static_cast<double>(c) + static_cast<double>(a) * static_cast<double>(b));
  }
  static inline __attribute__((always_inline)) double add(double c, double a, double b) { return std::fma(a, b, c); }
};
struct Truncated {                                 // exact product, sum cut to 24 bits
  static inline __attribute__((always_inline)) float add(float c, float a, float b) {
    const double sum = static_cast<double>(c) + static_cast<double>(a) * static_cast<double>(b);
    return static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) >> 29 << 29));
  }
};

// c[j] += sum_t a[t stride_a] b[t stride_b + j], t ascending; four terms at a time keep c in registers.
template <class Real, class How = Plain>
struct Products {
  GDN_BODY run(Real* __restrict c, const Real* a, Index stride_a, const Real* b, Index stride_b, Index terms, Index width) {
    Index t = 0;
    for (; t + 4 <= terms; t += 4) {
      const Real a0 = a[t * stride_a], a1 = a[(t + 1) * stride_a], a2 = a[(t + 2) * stride_a], a3 = a[(t + 3) * stride_a];
      const Real *b0 = b + t * stride_b, *b1 = b0 + stride_b, *b2 = b1 + stride_b, *b3 = b2 + stride_b;
      for (Index j = 0; j < width; ++j) c[j] = How::add(How::add(How::add(How::add(c[j], a0, b0[j]), a1, b1[j]), a2, b2[j]), a3, b3[j]);
    }
    for (; t < terms; ++t) {
      const Real at = a[t * stride_a];
      const Real* bt = b + t * stride_b;
      for (Index j = 0; j < width; ++j) c[j] = How::add(c[j], at, bt[j]);
    }
  }
};

// The same, and q[j] += the squares of all partial sums.
struct NoisyProducts {
  GDN_BODY run(double* __restrict c, double* __restrict q, const double* a, Index stride_a, const double* b, Index stride_b, Index terms, Index width) {
    Index t = 0;
    for (; t + 4 <= terms; t += 4) {
      const double a0 = a[t * stride_a], a1 = a[(t + 1) * stride_a], a2 = a[(t + 2) * stride_a], a3 = a[(t + 3) * stride_a];
      const double *b0 = b + t * stride_b, *b1 = b0 + stride_b, *b2 = b1 + stride_b, *b3 = b2 + stride_b;
      for (Index j = 0; j < width; ++j) {
        const double s0 = c[j] + a0 * b0[j], s1 = s0 + a1 * b1[j], s2 = s1 + a2 * b2[j], s3 = s2 + a3 * b3[j];
        c[j] = s3;
        q[j] += (s0 * s0 + s1 * s1) + (s2 * s2 + s3 * s3);
      }
    }
    for (; t < terms; ++t) {
      const double at = a[t * stride_a];
      const double* bt = b + t * stride_b;
      for (Index j = 0; j < width; ++j) {
        const double sum = c[j] + at * bt[j];
        c[j] = sum;
        q[j] += sum * sum;
      }
    }
  }
};

// Products of one row with kTokens vectors side by side, x [n,kTokens]: sums and the squares of their partial sums.
struct NoisyRow {
  static constexpr Index kTokens = 8;
  GDN_BODY run(const double* x, const float* w, Index n, double* __restrict sums, double* __restrict squares) {
    double s[kTokens] = {}, q[kTokens] = {};
    for (Index i = 0; i < n; ++i) {
      const double b = static_cast<double>(w[i]);
      for (Index j = 0; j < kTokens; ++j) {
        s[j] += x[i * kTokens + j] * b;
        q[j] += s[j] * s[j];
      }
    }
    for (Index j = 0; j < kTokens; ++j) sums[j] = s[j], squares[j] = q[j];
  }
};
// The sums alone, in fp32 to nearest.
struct RoundedRow {
  GDN_BODY run(const double* x, const float* w, Index n, double* __restrict sums) {
    float s[NoisyRow::kTokens] = {};
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < NoisyRow::kTokens; ++j) s[j] += static_cast<float>(x[i * NoisyRow::kTokens + j]) * w[i];
    for (Index j = 0; j < NoisyRow::kTokens; ++j) sums[j] = static_cast<double>(s[j]);
  }
};

// x[j] *= a.
template <class Real>
struct Scale {
  GDN_BODY run(Real* x, Real a, Index n) {
    for (Index j = 0; j < n; ++j) x[j] = a * x[j];
  }
};

template <Format F, class Real>
struct RoundNearest {
  GDN_BODY run(Real* x, Index n) {
    for (Index j = 0; j < n; ++j) x[j] = static_cast<Real>(round_nearest_even<F>(static_cast<double>(x[j])));
  }
};

// Top bit of *odd set when some x is neither 0 nor of a magnitude with bits in [least, least + span].
struct OutOfRange {
  GDN_BODY run(const double* x, std::uint64_t least, std::uint64_t span, std::uint64_t* odd, Index n) {
    std::uint64_t any = 0;
    for (Index j = 0; j < n; ++j) {                // doubles of one sign order like their bits
      const std::uint64_t m = std::bit_cast<std::uint64_t>(x[j]) & 0x7fffffffffffffffu;
      any |= ((m - least) | (span - (m - least))) & (0 - static_cast<std::uint64_t>(m != 0));
    }
    *odd = any;
  }
};

// Stochastic rounding that drops `drop` low bits: add random bits below the last kept one, then cut.
struct Cut {
  GDN_BODY run(double* x, const std::uint32_t* bits, int drop, Index n) {
    const int left = drop > 32 ? drop - 32 : 0, right = drop < 32 ? 32 - drop : 0;
    for (Index j = 0; j < n; ++j) {
      const std::uint64_t r = std::uint64_t{bits[j]} >> right << left;
      x[j] = std::bit_cast<double>((std::bit_cast<std::uint64_t>(x[j]) + r) >> drop << drop);
    }
  }
};

// `groups` steps of 16 xoshiro128+ generators side by side (Blackman and Vigna 2018); s [4,16].
struct Xoshiro {
  static constexpr Index kLanes = 16;
  GDN_BODY run(std::uint32_t* __restrict s, std::uint32_t* __restrict out, Index groups) {
    for (Index g = 0; g < groups; ++g)
      for (Index i = 0; i < kLanes; ++i) {
        const std::uint32_t a = s[i], b = s[kLanes + i], last = s[3 * kLanes + i], c = s[2 * kLanes + i] ^ a, d = last ^ b;
        out[g * kLanes + i] = a + last;
        s[kLanes + i] = b ^ c;
        s[i] = a ^ d;
        s[2 * kLanes + i] = c ^ (b << 9);
        s[3 * kLanes + i] = d << 11 | d >> 21;
      }
  }
};

// One key channel of a decay and read: s *= a, w += k s, w_abs += |k| |s|.
struct DecayRead {
  GDN_BODY run(double* __restrict s, double a, double k, double k_abs, double* __restrict w, double* __restrict w_abs, Index n) {
    for (Index j = 0; j < n; ++j) {
      const double x = a * s[j];
      s[j] = x;
      w[j] += k * x;
      w_abs[j] += k_abs * std::fabs(x);
    }
  }
};

// One key channel of a write and read: s <- a s + k y, o += q s.
struct WriteRead {
  GDN_BODY run(double* __restrict s, double a, double k, const double* y, double q, double* __restrict o, Index n) {
    for (Index j = 0; j < n; ++j) {
      const double x = a * s[j] + k * y[j];
      s[j] = x;
      o[j] += q * x;
    }
  }
};

// The same with o_abs += |q| (|s| + |k||y|) of the old s, and square += s^2 of the new.
struct WriteReadAbsolute {
  GDN_BODY run(double* __restrict s, double k, double k_abs, const double* y, double q, double q_abs, double* __restrict o, double* __restrict o_abs, double* __restrict square, Index n) {
    for (Index j = 0; j < n; ++j) {
      const double old = s[j], x = old + k * y[j];
      s[j] = x;
      o[j] += q * x;
      o_abs[j] += q_abs * (std::fabs(old) + k_abs * std::fabs(y[j]));
      square[j] += x * x;
    }
  }
};

}  // namespace gdn::lanes
