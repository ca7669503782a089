// The recurrence of every rule, once, as a template over the arithmetic. Per token and value channel, with the
// state row s in R^K of that channel:
//     s <- alpha s (complex_kda: pairs of key channels are turned as well);  y = beta (v - s.k) (delta rules) or beta v;  s <- s + y k;  o = s.q  (scale is the caller's)
// Value channels do not interact, so one call treats one channel, or one pack of channels in vector lanes.
//
// An Arithmetic brings
//   Value                         a state element (number, or pack of numbers)
//   Sum { add(Value, Operand); fold(); Value value(); }   a dot product; fold() closes a group of kGroup terms
//   Value correct(alpha, Value w, beta, Value v)          beta (v - alpha w)
//   Value scale_value(beta, Value v)                      beta v
//   Value decay_write(alpha, Value s, Value y, key)       alpha s + y k
// and a Source the operands: value(t), beta(t), alpha(t) or alpha(t,d) with alpha_read(t), query(t,d), key(t,d)
// and read_key(t,d): what the state before token t is multiplied by to read w, the key, or with a gate per key
// channel the decayed key (alpha_read is 1 then). A Watch sees every new state element and every token.
#pragma once
#include <cstdint>

#include "reference/problem.h"

namespace gdn {

constexpr bool gate_per_key_channel(Rule r) { return r == Rule::kda || r == Rule::complex_kda; }
constexpr bool has_gate(Rule r) { return r != Rule::delta && r != Rule::linear; }
constexpr bool has_delta(Rule r) { return r == Rule::gated_delta || r == Rule::delta || gate_per_key_channel(r); }

constexpr std::int64_t kGroup = 8;

// state: K values, read and updated. Linear rules differ by `delta` and by the gates that the source returns only.
// The read of the next token is formed while the new state is at hand, so the state is walked once per token.
// turned (complex_kda): key channels 2j and 2j+1 are the parts of one complex channel, which turn(t,j) = {real, imag, minus_imag}, of modulus 1, multiplies
// before its decay; read_key has to be what comes of the key by both.
template <bool delta, bool gate_per_channel, bool turned = false, class Arithmetic, class Source, class Watch>
inline void recurrence(const Arithmetic& a, const Source& in, std::int64_t T, std::int64_t K,
                       typename Arithmetic::Value* state, Watch& watch) {
  using Value = typename Arithmetic::Value;
  using Sum = typename Arithmetic::Sum;
  Value w = a.zero();
  if (delta && T > 0) {
    Sum sum(a);
    for (std::int64_t d0 = 0; d0 < K; d0 += kGroup) {
      const std::int64_t end = d0 + kGroup < K ? d0 + kGroup : K;
      for (std::int64_t d = d0; d < end; ++d) sum.add(state[d], in.read_key(0, d));
      sum.fold();
    }
    w = sum.value();
  }
  for (std::int64_t t = 0; t < T; ++t) {
    const Value v = in.value(t);
    const Value y = delta ? a.correct(in.alpha_read(t), w, in.beta(t), v) : a.scale_value(in.beta(t), v);
    const std::int64_t next = t + 1 < T ? t + 1 : t;         // at the end the read is formed and not used
    Sum out(a), read(a);
    watch.begin();
    for (std::int64_t d0 = 0; d0 < K; d0 += kGroup) {
      const std::int64_t end = d0 + kGroup < K ? d0 + kGroup : K;
      if constexpr (turned)
        for (std::int64_t d = d0; d < end; d += 2) {
          const auto turn = in.turn(t, d / 2);
          const Value re = state[d], im = state[d + 1];
          state[d] = a.decay_write(turn.real, re, im, turn.minus_imag);
          state[d + 1] = a.decay_write(turn.real, im, re, turn.imag);
        }
      for (std::int64_t d = d0; d < end; ++d) {
        Value s;
        if constexpr (gate_per_channel) s = a.decay_write(in.alpha(t, d), state[d], y, in.key(t, d));
        else s = a.decay_write(in.alpha(t), state[d], y, in.key(t, d));
        state[d] = s;
        watch.element(s);
        out.add(s, in.query(t, d));
        if constexpr (delta) read.add(s, in.read_key(next, d));
      }
      out.fold();
      if constexpr (delta) read.fold();
    }
    watch.token(t, v, w, y, out.value());
    if constexpr (delta) w = read.value();
  }
}

// Chooses the instance for a rule; complex_kda is called by name.
template <class Arithmetic, class Source, class Watch>
inline void recurrence(Rule rule, const Arithmetic& a, const Source& in, std::int64_t T, std::int64_t K,
                       typename Arithmetic::Value* state, Watch& watch) {
  if (gate_per_key_channel(rule)) recurrence<true, true>(a, in, T, K, state, watch);
  else if (has_delta(rule)) recurrence<true, false>(a, in, T, K, state, watch);
  else recurrence<false, false>(a, in, T, K, state, watch);
}

// Arithmetic of an ordinary number type (float, double, multiprecision, and the symbolic types of oracle.cpp).
template <class N>
struct PlainArithmetic {
  using Value = N;
  struct Sum {
    N total;
    explicit Sum(const PlainArithmetic& a) : total(a.zero()) {}
    void add(const N& s, const N& x) { total += s * x; }
    void fold() {}
    const N& value() const { return total; }
  };
  N zero() const { return N(0); }
  N correct(const N& alpha, const N& w, const N& beta, const N& v) const { return beta * (v - alpha * w); }
  N scale_value(const N& beta, const N& v) const { return beta * v; }
  N decay_write(const N& alpha, const N& s, const N& y, const N& k) const { return alpha * s + y * k; }
};

}  // namespace gdn
