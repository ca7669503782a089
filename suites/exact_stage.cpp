// Exactness certificates of stages; see exact_stage.h.
#include "suites/exact_stage.h"

#include <algorithm>
#include <cmath>

namespace gdn {
namespace {

using I = std::int64_t;
using Vector = std::vector<double>;
std::size_t at(I i) { return static_cast<std::size_t>(i); }

// Greatest power of two of which every element is a whole multiple; 1 of zeros alone.
double granule(const Vector& x) {
  int least = 2000;
  for (double v : x) {
    if (v == 0 || !std::isfinite(v)) continue;
    int e = 0;
    double m = std::frexp(v, &e);
    while (m != std::floor(m)) m *= 2, --e;
    while (std::fmod(m, 2) == 0) m /= 2, ++e;
    least = std::min(least, e);
  }
  return least == 2000 ? 1 : std::ldexp(1.0, least);
}

bool power_of_two(double x) {
  int e;
  return x == 0 || std::fabs(std::frexp(x, &e)) == 0.5;
}
bool powers_of_two(const Vector& x) { return std::all_of(x.begin(), x.end(), power_of_two); }

class Tracker {
 public:
  Tracker(const Contract& c, const Run& run)
      : c_(c), run_(run), p_(run.problem), K_(p_.key_dim), V_(p_.value_dim), limit_(c.accumulator == Accumulator::fp64 ? 0x1p53 : c.accumulator == Accumulator::tensor_core ? 0x1p23 : 0x1p24) {}

  Vector rows(const char* name, const ChunkPlace& c, I hv) const {
    const Tensor& t = run_.inputs.find(std::string_view(name))->second;
    const I heads = t.shape[1], width = t.shape.size() > 2 ? t.shape[2] : 1, h = heads == p_.value_heads ? hv : hv / (p_.value_heads / heads);
    const I taken = *name == 'L' || *name == 'M' ? c.rows : width;
    Vector x;
    for (I r = 0; r < c.rows; ++r)
      for (I e = 0; e < taken; ++e) x.push_back(t.at(((c.token + r) * heads + h) * width + e));
    return x;
  }
  Vector state(const char* name, I row, I hv) const {
    Vector x(at(K_ * V_), 0.0);
    if (const auto t = run_.inputs.find(std::string_view(name)); t != run_.inputs.end())
      for (I i = 0; i < K_ * V_; ++i) x[at(i)] = t->second.at((row * p_.value_heads + hv) * K_ * V_ + i);
    return x;
  }
  bool stored(Point p, const Vector& x) const {    // exactly
    if (unit(c_, p) == 0 && underflow(c_, p) == 0) return true;
    return std::all_of(x.begin(), x.end(), [&](double v) { return round_to(v, c_.at(p)) == v; });
  }
  static bool zeros(const Vector& x) { return std::all_of(x.begin(), x.end(), [](double v) { return v == 0; }); }
  static Vector magnitudes(Vector x) {
    for (double& v : x) v = std::fabs(v);
    return x;
  }
  // a [rows,terms] b [terms,width], or with the transpose of b [width,terms].
  static Vector product(const Vector& a, const Vector& b, I rows, I terms, I width, bool transposed = false) {
    Vector c(at(rows * width), 0.0);
    for (I i = 0; i < rows; ++i)
      for (I t = 0; t < terms; ++t)
        for (I j = 0; j < width; ++j) c[at(i * width + j)] += a[at(i * terms + t)] * b[at(transposed ? j * terms + t : t * width + j)];
    return c;
  }
  // Whether the sums of a product are exact in any order, whatever is added to them at the start.
  bool sums(const Vector& a, const Vector& b, I rows, I terms, I width, bool transposed = false, const Vector& start = {}) const {
    Vector c = product(magnitudes(a), magnitudes(b), rows, terms, width, transposed);
    double unit = granule(a) * granule(b);
    if (!start.empty()) unit = std::min(unit, granule(start));
    for (std::size_t i = 0; i < c.size(); ++i)
      if (!(c[i] + (start.empty() ? 0 : std::fabs(start[i])) <= limit_ * unit)) return false;
    return true;
  }

  bool gate_sum(const ChunkPlace& c, I hv) const {
    const Vector g = rows("g", c, hv);
    double sum = 0;
    for (const double x : g) sum += std::fabs(x);
    return sum <= limit_ * granule(g);
  }
  bool gram(const ChunkPlace& c, I hv) const {
    const I n = c.rows;
    const Vector k = rows("k", c, hv), beta = rows("beta", c, hv);
    if (!zeros(rows("G", c, hv)) || !powers_of_two(beta) || !stored(Point::k_in, k) || !stored(Point::beta, beta) || !sums(k, k, n, K_, n, true)) return false;
    return stored(Point::gram, product(k, k, n, K_, n, true));
  }
  bool inverse(const ChunkPlace& c, I hv) const {
    const I n = c.rows;
    const Vector L = rows("L", c, hv);
    if (c_.solve == Solve::neumann || granule(L) < 1 || !stored(Point::gram, L)) return false;
    Vector M(at(n * n), 0.0);
    for (I i = 0; i < n; ++i) {
      M[at(i * n + i)] = 1;
      for (I p = 0; p < i; ++p)
        for (I j = 0; j <= p; ++j) M[at(i * n + j)] -= L[at(i * n + p)] * M[at(p * n + j)];
    }
    const Vector M_abs = magnitudes(M), LM = product(magnitudes(L), M_abs, n, n, n), all = product(M_abs, LM, n, n, n);
    const double most = *std::max_element(all.begin(), all.end()), pair = *std::max_element(LM.begin(), LM.end());
    const Store& gram = c_.at(Point::gram);        // operands of the products
    const double digits = std::ldexp(1.0, info(gram.format).precision * gram.terms);
    return most < limit_ && (unit(c_, Point::gram) == 0 || std::max(pair, *std::max_element(M_abs.begin(), M_abs.end())) <= digits);
  }
  bool uw(const ChunkPlace& c, I hv, bool of_w) const {
    const I n = c.rows, width = of_w ? K_ : V_;
    const Vector M = rows("M", c, hv), beta = rows("beta", c, hv), x = rows(of_w ? "k" : "v", c, hv);
    if ((of_w && !zeros(rows("G", c, hv))) || !powers_of_two(beta) || !stored(Point::M, M) || !stored(Point::beta, beta) || !stored(of_w ? Point::k_in : Point::v_in, x)) return false;
    Vector right;
    for (I i = 0; i < n * width; ++i) right.push_back(beta[at(i / width)] * x[at(i)]);
    return stored(of_w ? Point::bk : Point::bv, right) && sums(M, right, n, n, width);
  }
  // S: the state before the chunk on entry, after it on return; Vn.
  bool step(const ChunkPlace& c, I hv, Vector& S) const {
    const I n = c.rows;
    const Vector k = rows("k", c, hv), W = rows("W", c, hv), U = rows("U", c, hv);
    if (!zeros(rows("G", c, hv)) || !stored(Point::S_op, S) || !stored(Point::k_in, k) || !stored(Point::W, W) || !stored(Point::U, U) || !sums(W, S, n, K_, V_, false, U)) return false;
    Vector Vn = product(W, S, n, K_, V_), kt(at(K_ * n));
    for (std::size_t i = 0; i < Vn.size(); ++i) Vn[i] = U[i] - Vn[i];
    for (I r = 0; r < n; ++r)
      for (I d = 0; d < K_; ++d) kt[at(d * n + r)] = k[at(r * K_ + d)];
    if (!stored(Point::Vn_s, Vn) || !stored(Point::k_scaled, k) || !sums(kt, Vn, K_, n, V_, false, S)) return false;
    const Vector added = product(kt, Vn, K_, n, V_);
    for (std::size_t i = 0; i < S.size(); ++i) S[i] += added[i];
    return stored(Point::S_carried, S);
  }
  bool output(const ChunkPlace& c, I number, I hv) const {
    const I n = c.rows;
    const Vector q = rows("q", c, hv), k = rows("k", c, hv), Vn = rows("Vn", c, hv), S = state("states", number, hv);
    if (!zeros(rows("G", c, hv)) || !power_of_two(p_.effective_scale()) || !stored(Point::q_in, q) || !stored(Point::k_in, k) || !stored(Point::q_scaled, q) ||
        !stored(Point::Vn_o, Vn) || !stored(Point::S_op, S) || !sums(q, k, n, K_, n, true))
      return false;
    Vector P = product(q, k, n, K_, n, true);
    for (I i = 0; i < n; ++i)
      for (I j = i + 1; j < n; ++j) P[at(i * n + j)] = 0;
    return stored(Point::gram, P) && stored(Point::P, P) && sums(P, Vn, n, n, V_, false, product(magnitudes(q), magnitudes(S), n, K_, V_)) && sums(q, S, n, K_, V_) ;
  }

  StageExact run() const {
    StageExact all;
    for (const StageTensor& o : stage_outputs(p_)) {
      std::size_t count = 1;
      for (const I n : o.shape) count *= at(n);
      all[o.name].assign(count, 0);
    }
    const auto mark = [&](const char* tensor, const ChunkPlace& c, I hv, I width) {
      for (I r = 0; r < c.rows; ++r) std::fill_n(all.find(tensor)->second.begin() + ((c.token + r) * p_.value_heads + hv) * width, width, char{1});
    };
    const std::vector<ChunkPlace> places = chunk_places(p_);
    const I HV = p_.value_heads, KV = K_ * V_;
    for (I hv = 0; hv < HV; ++hv) {
      Vector S;
      bool good = true;
      for (std::size_t i = 0; i < places.size(); ++i) {
        const ChunkPlace& c = places[i];
        switch (p_.stage) {
          case Stage::gate_sum: if (gate_sum(c, hv)) mark("G", c, hv, 1); break;
          case Stage::gram: if (gram(c, hv)) mark("L", c, hv, p_.chunk); break;
          case Stage::inverse: if (inverse(c, hv)) mark("M", c, hv, p_.chunk); break;
          case Stage::uw:
            if (uw(c, hv, false)) mark("U", c, hv, V_);
            if (uw(c, hv, true)) mark("W", c, hv, K_);
            break;
          case Stage::chunk_states:
            if (c.number == 0) {
              S = state("h0", c.sequence, hv);
              good = true;
            }
            if (!good) break;
            std::fill_n(all.find("states")->second.begin() + (static_cast<I>(i) * HV + hv) * KV, KV, char{1});
            if (!(good = step(c, hv, S))) break;
            mark("Vn", c, hv, V_);
            if (p_.final_state && (i + 1 == places.size() || places[i + 1].sequence != c.sequence)) std::fill_n(all.find("ht")->second.begin() + (c.sequence * HV + hv) * KV, KV, char{1});
            break;
          case Stage::output: if (output(c, static_cast<I>(i), hv)) mark("o", c, hv, V_); break;
        }
      }
    }
    return all;
  }

 private:
  const Contract& c_;
  const Run& run_;
  const Problem& p_;
  I K_, V_;
  double limit_;
};

}  // namespace

StageExact exact_stage(const Contract& contract, const Run& run) { return Tracker(contract, run).run(); }

}  // namespace gdn
