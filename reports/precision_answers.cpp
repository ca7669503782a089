// What the points of a precision study answer: rankings, cheapest contracts, growth laws, findings in a sentence each.
// Every number is computed from the points; a question whose study is not there, or whose points are too few, is left out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>

#include "reports/precision.h"
#include "reports/text.h"

namespace gdn {
namespace reports {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using List = std::vector<const PrecisionPoint*>;

// Of the 95 % interval with n-1 degrees of freedom; beyond the table the last value, which is a little wide.
double student(int n) {
  constexpr double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
  return n < 2 ? std::numeric_limits<double>::infinity() : t[std::min<std::size_t>(static_cast<std::size_t>(n - 2), std::size(t) - 1)];
}

std::string axis(const PrecisionPoint& p, const std::string& name) {
  const auto at = p.axes.find(name);
  return at == p.axes.end() ? "" : at->second;
}

// The worse of o and ht: what is kept must be kept in both.
double error_of(const PrecisionPoint& p) { return std::max(rms(p.o_rms), rms(p.ht_rms)); }
double bits_of(const PrecisionPoint& p) { return bits_kept(error_of(p)); }

std::string bits_text(double bits) {
  if (std::isnan(bits)) return "-";
  if (std::isinf(bits)) return bits > 0 ? "exact" : "overflow";
  return fmt::format("{:.1f}", bits);
}
std::string exponent_text(const PowerLaw& l) {
  if (std::isnan(l.exponent)) return "-";
  return std::isfinite(l.half_width) ? fmt::format("{:.2f} ± {:.2f}", l.exponent, l.half_width) : fmt::format("{:.2f}", l.exponent);
}
std::string gate_text(const std::string& gate) { return gate.empty() ? "" : gate == "0" ? "no decay" : "a mean decay of " + gate + " per token"; }

class Questions {
 public:
  Questions(const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies) {
    for (const PrecisionPoint& p : points) studies_[p.study].push_back(&p);
    for (const PrecisionStudy& s : studies) contracts_[s.name] = s.contracts;
  }
  Answers all() {
    headlines();
    points();
    widen();
    length();
    preset();
    cheapest();
    spread("gates", "gate");
    spread("betas", "beta");
    spread("keys", "keys");
    spread("chunk", "chunk");
    inverse();
    rounding();
    cadence();
    accumulator();
    bounds();
    kernels();
    return std::move(a_);
  }

 private:
  // Contracts of the study carried out; not those that kernels brought along.
  List of(const std::string& study) const {
    List list;
    const auto own = contracts_.find(study);
    if (const auto at = studies_.find(study); at != studies_.end())
      for (const PrecisionPoint* p : at->second)
        if (p->kernel.empty() && (own == contracts_.end() || own->second.empty() || std::find(own->second.begin(), own->second.end(), axis(*p, "contract")) != own->second.end())) list.push_back(p);
    return list;
  }
  // The one point of the study with these values; nullptr where there is none.
  const PrecisionPoint* one(const std::string& study, const std::map<std::string, std::string>& at) const {
    for (const PrecisionPoint* p : of(study))
      if (std::all_of(at.begin(), at.end(), [&](const auto& a) { return axis(*p, a.first) == a.second; })) return p;
    return nullptr;
  }
  // Values of an axis: numbers in their order, words in order of appearance.
  static std::vector<std::string> values(const List& list, const std::string& name) {
    std::vector<std::string> v;
    for (const PrecisionPoint* p : list)
      if (std::find(v.begin(), v.end(), axis(*p, name)) == v.end()) v.push_back(axis(*p, name));
    if (std::all_of(v.begin(), v.end(), [](const std::string& x) { return !x.empty() && x.find_first_not_of("0123456789.e-") == std::string::npos && x.find("..") == std::string::npos; }))
      std::stable_sort(v.begin(), v.end(), [](const std::string& a, const std::string& b) { return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr); });
    return v;
  }
  static List where(const List& list, const std::string& name, const std::string& value) {
    List some;
    for (const PrecisionPoint* p : list)
      if (axis(*p, name) == value) some.push_back(p);
    return some;
  }
  static List by_tokens(List list) {
    std::stable_sort(list.begin(), list.end(), [](const PrecisionPoint* a, const PrecisionPoint* b) { return a->tokens < b->tokens; });
    return list;
  }
  void say(const std::string& study, std::string text, bool headline = false) { a_.findings.push_back({study, std::move(text), headline}); }
  static PowerLaw law(const List& list, const std::function<const std::vector<double>&(const PrecisionPoint&)>& of, long long from) {
    std::vector<double> n;
    std::vector<std::vector<double>> y;
    for (const PrecisionPoint* p : by_tokens(list))
      if (p->tokens >= from) {
        n.push_back(static_cast<double>(p->tokens));
        y.push_back(of(*p));
      }
    return fit_power_law(n, y);
  }

  // What most people ask, with one number that answers it. Each is left out where its points are not at hand.
  void headlines() {
    const auto head = [&](const std::string& study, std::string text) { say(study, std::move(text), true); };
    const auto bits = [](const PrecisionPoint* p) { return bits_text(bits_of(*p)); };
    const auto most = [&](const std::string& study, const std::string& name) {
      const std::vector<std::string> v = values(of(study), name);
      return v.empty() ? "" : v.back();
    };
    const std::string end = most("cadence", "T");
    const auto state = [&](const std::string& contract) { return one("cadence", {{"contract", contract}, {"gate", "0"}, {"T", end}}); };
    const PrecisionPoint *whole = state("fp32-recurrent"), *token = state("fp32-recurrent;S_carried=bf16"), *chunk = state("fp32-chunk;S_carried=bf16"), *call = state("fp32-chunk;S_carried=bf16;cadence=call");
    if (whole && token && chunk && call)
      head("cadence", fmt::format("May I keep the state in bf16? Rounded after every token it leaves {} bits, after every chunk of 64 {}, after every call of 1024 {}, where fp32 keeps {} ({} tokens with no decay, heads of {}).", bits(token), bits(chunk), bits(call),
                                  bits(whole), end, whole->key_dim));
    const std::string form = "fp32-chunk;solve=block_inverse";
    const auto point = [&](const std::string& name, const std::string& format) { return one("points", {{"contract", form}, {"gate", most("points", "gate")}, {"point", name}, {"format", format}}); };
    for (const auto& [name, format, question] : {std::tuple{"M", "tf32", "May I keep the inverse in TF32? M alone in it"}, {"G", "bf16", "May I keep the gate in bf16? Its sums G alone in it"}})
      if (const PrecisionPoint *p = point(name, format), *base = point("none", ""); p && base)
        head("points", fmt::format("{} leave{} {} bits of {} ({} tokens with {}, heads of {}).", question, name == std::string("M") ? "s" : "", bits(p), bits(base), p->tokens, gate_text(most("points", "gate")), p->key_dim));
    const std::string far = most("far", "T"), weak = values(of("far"), "beta").empty() ? "" : values(of("far"), "beta").back();
    const auto carried = [&](const char* contract, const std::string& T) { return one("far", {{"contract", contract}, {"beta", weak}, {"T", T}}); };
    if (const PrecisionPoint *state16 = carried("bf16-state", far), *before = carried("bf16-state", far.empty() ? "" : values(of("far"), "T").front()), *operands = carried("bf16-chunk", far); state16 && before && operands)
      head("far", fmt::format("How far does it carry? With no decay and beta {} a state rounded to bf16 after every token keeps {} bits at {} tokens, after {} at {}; bf16 operands and a state in fp32 keep {} (heads of {}).", weak, bits(state16), far, bits(before),
                              before->tokens, bits(operands), state16->key_dim));
    const auto inverse = [&](const char* solve) { return one("inverse", {{"contract", "fp32-chunk"}, {"vectors", "wu"}, {"T", "64"}, {"solve", solve}, {"keys", "1"}}); };
    if (const PrecisionPoint *neumann = inverse("neumann"), *substitution = inverse("substitution"); neumann && substitution)
      head("inverse", fmt::format("The inverse by log-depth products on equal keys in fp32 errs by {} times the signal, by substitution {} (one chunk of 64 tokens).", short_number(rms(neumann->o_rms)), short_number(rms(substitution->o_rms))));
    if (const PrecisionPoint *a = one("keys", {{"contract", "bf16-chunk"}, {"keys", "0"}}), *b = one("keys", {{"contract", "bf16-chunk"}, {"keys", "0.99"}}); a && b)
      head("keys", fmt::format("Keys with a mean cosine of 0.99 cost bf16-chunk {:.1f} bits against uncorrelated ones ({} tokens, heads of {}).", bits_of(*a) - bits_of(*b), a->tokens, a->key_dim));
    const std::string cut = most("rounding", "T");
    if (const PrecisionPoint *a = one("rounding", {{"contract", "bf16-state"}, {"rounding", "rne"}, {"T", cut}}), *b = one("rounding", {{"contract", "bf16-state"}, {"rounding", "rz"}, {"T", cut}}); a && b)
      head("rounding", fmt::format("Cutting the bf16 state toward zero instead of rounding it to nearest costs {:.1f} bits at {} tokens.", bits_of(*a) - bits_of(*b), cut));
    const std::string sums = most("accumulator", "T");
    if (const PrecisionPoint *a = one("accumulator", {{"contract", "fp32-chunk"}, {"accumulator", "fp32"}, {"T", sums}}), *b = one("accumulator", {{"contract", "fp32-chunk"}, {"accumulator", "tensor_core"}, {"T", sums}}); a && b)
      head("accumulator", fmt::format("Sums cut as tensor cores do cost fp32-chunk {:.1f} bits at {} tokens.", bits_of(*a) - bits_of(*b), sums));
    const std::string size = most("chunk", "chunk");
    if (const PrecisionPoint *a = one("chunk", {{"contract", "bf16-chunk"}, {"gate", "0.01"}, {"chunk", "64"}}), *b = one("chunk", {{"contract", "bf16-chunk"}, {"gate", "0.01"}, {"chunk", size}}); a && b)
      head("chunk", fmt::format("Chunks of {} in place of 64 cost bf16-chunk {:.1f} bits with a mean decay of 0.01 per token.", size, bits_of(*a) - bits_of(*b)));
    const std::string bound = most("bounds", "T");
    if (const PrecisionPoint* p = one("bounds", {{"contract", "bf16-chunk"}, {"gate", "0.01"}, {"T", bound}}); p && !p->o_bound.empty())
      head("bounds", fmt::format("The bound of bf16-chunk with a mean decay of 0.01 per token is {} times the measured error at {} tokens, sigma {} times.", short_number(rms(p->o_bound) / rms(p->o_rms)), bound, short_number(rms(p->o_sigma) / rms(p->o_rms))));
  }

  void points() {
    const List all = of("points");
    if (all.empty()) return;
    std::vector<std::string> formats;
    for (const std::string& f : values(all, "format"))
      if (!f.empty()) formats.push_back(f);
    AnswerTable t{"points", "ranking", "Storage points ranked by what they cost in bf16", fmt::format("Bits kept (of o or of the final state, whichever keeps fewer) with that point alone in the format and everything else in fp32; lost: against everything in fp32. {} tokens, heads of {}.", all[0]->tokens, all[0]->key_dim),
                  {"contract", "mean decay", "rank#", "point", "lost in bf16#"}, {}};
    for (const std::string& f : formats) t.columns.push_back(f + "#");
    struct Row { std::string point; double lost; std::map<std::string, double> bits; };
    for (const std::string& contract : values(all, "contract"))
      for (const std::string& gate : values(all, "gate")) {
        const List list = where(where(all, "contract", contract), "gate", gate);
        const List base = where(list, "point", "none");
        if (base.empty()) continue;
        const double whole = bits_of(*base[0]);
        std::vector<Row> rows;
        for (const std::string& point : values(list, "point")) {
          if (point == "none") continue;
          Row r{point, kNan, {}};
          for (const PrecisionPoint* p : where(list, "point", point)) r.bits[axis(*p, "format")] = bits_of(*p);
          if (r.bits.count("bf16")) r.lost = whole - r.bits.at("bf16");
          rows.push_back(std::move(r));
        }
        std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return worse(x.lost, y.lost); });
        t.rows.push_back({contract, gate, "", "all fp32", ""});
        for (std::size_t f = 0; f < formats.size(); ++f) t.rows.back().push_back(bits_text(whole));
        for (std::size_t i = 0; i < rows.size(); ++i) {
          t.rows.push_back({contract, gate, std::to_string(i + 1), rows[i].point, std::isinf(rows[i].lost) ? "all" : bits_text(rows[i].lost)});
          for (const std::string& f : formats) t.rows.back().push_back(rows[i].bits.count(f) ? bits_text(rows[i].bits.at(f)) : "-");
        }
        const auto kept = [](const Row& r, const char* f) { return bits_text(r.bits.count(f) ? r.bits.at(f) : kNan); };
        constexpr double kNothing = 0.1;           // bits: D without decay loses none
        const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& r) { return r.lost > kNothing; });
        if (last == rows.rend()) continue;
        say("points", fmt::format("Of the storage points of {} with {}, {} costs most in bf16: alone in bf16 it leaves {} bits of {}; {} costs least of those that cost anything and leaves {}.", contract, gate_text(gate),
                                  rows.front().point, kept(rows.front(), "bf16"), bits_text(whole), last->point, kept(*last, "bf16")));
        if (gate != values(all, "gate").back() || contract.find("vectors=residual") != std::string::npos) continue;
        for (const Row& r : rows) {
          if (r.point == "G") say("points", fmt::format("The gate: G alone in {} with {} leaves {} bits in bf16, {} in fp16 or {} in tf32.", contract, gate_text(gate), kept(r, "bf16"), kept(r, "fp16"), kept(r, "tf32")));
          if (r.point == "M") say("points", fmt::format("The inverse: M alone in {} with {} leaves {} bits in tf32, {} in bf16, {} in fp8_e4m3.", contract, gate_text(gate), kept(r, "tf32"), kept(r, "bf16"), kept(r, "fp8_e4m3")));
          if (r.point == "S_carried") say("points", fmt::format("The carried state: alone in bf16 in {} with {}, after {} tokens, it leaves {} bits; in fp16 {}.", contract, gate_text(gate), list[0]->tokens, kept(r, "bf16"), kept(r, "fp16")));
        }
      }
    a_.tables.push_back(std::move(t));
  }

  void widen() {
    const List all = of("widen");
    if (all.empty()) return;
    AnswerTable t{"widen", "gain", "What one point given back to fp32 gains", "Bits gained by keeping this point alone in fp32 and the others as the contract has them.", {"contract", "mean decay", "point", "kept before#", "kept#", "gained#"}, {}};
    for (const std::string& contract : values(all, "contract"))
      for (const std::string& gate : values(all, "gate")) {
        const List list = where(where(all, "contract", contract), "gate", gate), base = where(list, "point", "none");
        if (base.empty()) continue;
        const double whole = bits_of(*base[0]);
        std::vector<std::pair<double, std::string>> rows;
        for (const PrecisionPoint* p : list)
          if (axis(*p, "point") != "none") rows.emplace_back(bits_of(*p) - whole, axis(*p, "point"));
        std::stable_sort(rows.begin(), rows.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
        for (const auto& [gained, point] : rows) t.rows.push_back({contract, gate, point, bits_text(whole), bits_text(whole + gained), fmt::format("{:.2f}", gained)});
        if (!rows.empty())
          say("widen", fmt::format("In {} with {} no single point is worth more than {:.2f} bits: that is what {} gains by fp32, the next {}.", contract, gate_text(gate), rows[0].first, rows[0].second,
                                   rows.size() > 1 ? fmt::format("({}) {:.2f}", rows[1].second, rows[1].first) : "none"));
      }
    a_.tables.push_back(std::move(t));
  }

  // f(points of one decay and strength of writes, "0.01", "0..1", the same in words).
  template <class F>
  static void regimes(const List& all, const F& f) {
    for (const std::string& gate : values(all, "gate"))
      for (const std::string& beta : values(all, "beta")) {
        const List list = where(where(all, "gate", gate), "beta", beta);
        if (!list.empty()) f(list, gate, beta, gate_text(gate) + (beta.empty() ? "" : " and beta " + beta));
      }
  }

  void length() {
    for (const char* study : {"length", "far"}) {
      const List all = of(study);
      if (all.empty()) continue;
      AnswerTable t{study, std::string(study) + "_growth", "How far it carries, and how the error grows", "",
                    {"contract", "mean decay", "beta", "keeps 16 bits up to#", "11 bits up to#", "8 bits up to#", "bits kept at the end#", "exponent of o#", "exponent of ht#"}, {}};
      constexpr long long kFrom = 256;             // before that the state is still being filled
      t.note = fmt::format("Tokens up to which both o and the final state keep so many bits, of those tried. Exponent p of error = a T^p from T = {} on: least squares on logarithms, draw by draw, with the 95 % interval over draws.", kFrom);
      regimes(all, [&](const List& some, const std::string& gate, const std::string& beta, const std::string& words) {
        struct Growth { std::string contract; PowerLaw law; const PrecisionPoint *first, *last; };
        std::vector<Growth> growth;
        for (const std::string& contract : values(some, "contract")) {
          const List list = by_tokens(where(some, "contract", contract));
          const auto up_to = [&](double bits) {
            long long most = 0;
            for (const PrecisionPoint* p : list) {
              if (!(bits_of(*p) >= bits)) break;
              most = p->tokens;
            }
            return most ? (most == list.back()->tokens ? "≥ " : "") + std::to_string(most) : std::string("none");
          };
          const PowerLaw o = law(list, [](const PrecisionPoint& p) -> const std::vector<double>& { return p.o_rms; }, kFrom), ht = law(list, [](const PrecisionPoint& p) -> const std::vector<double>& { return p.ht_rms; }, kFrom);
          t.rows.push_back({contract, gate, beta, up_to(16), up_to(11), up_to(8), bits_text(bits_of(*list.back())), exponent_text(o), exponent_text(ht)});
          if (!std::isnan(ht.exponent)) growth.push_back({contract, ht, list.front(), list.back()});
        }
        if (growth.size() < 2) return;
        const auto less = [](const Growth& a, const Growth& b) { return a.law.exponent < b.law.exponent; };
        const Growth &most = *std::max_element(growth.begin(), growth.end(), less), &least = *std::min_element(growth.begin(), growth.end(), less);
        const auto one = [](const Growth& g) {
          return fmt::format("{} as T^({}), from {} bits at {} tokens to {} at {}", g.contract, exponent_text(g.law), bits_text(bits_kept(rms(g.first->ht_rms))), g.first->tokens, bits_text(bits_kept(rms(g.last->ht_rms))), g.last->tokens);
        };
        say(study, fmt::format("With {} the error of the final state grows most in {}; least in {}.", words, one(most), one(least)));
      });
      a_.tables.push_back(std::move(t));
    }
  }

  void preset() {
    const List all = of("length");
    if (all.empty()) return;
    AnswerTable t{"length", "cheapest_preset", "The cheapest of these contracts that keeps 8, 11 or 16 bits", "Cost: bits that the stores hold per token and head.", {"tokens#", "mean decay", "beta", "bits asked#", "contract", "bits kept#", "cost#"}, {}};
    regimes(all, [&](const List& some, const std::string& gate, const std::string& beta, const std::string&) {
      for (const std::string& T : values(some, "T"))
        for (const int bits : {8, 11, 16}) {
          const PrecisionPoint* best = nullptr;
          for (const PrecisionPoint* p : where(some, "T", T))
            if (bits_of(*p) >= bits && (!best || p->cost < best->cost || (p->cost == best->cost && error_of(*p) < error_of(*best)))) best = p;
          t.rows.push_back({T, gate, beta, std::to_string(bits), best ? axis(*best, "contract") : "none of them", best ? bits_text(bits_of(*best)) : "-", best ? fmt::format("{:.0f}", best->cost) : "-"});
        }
    });
    a_.tables.push_back(std::move(t));
  }

  void cheapest() {
    const List all = of("cheapest");
    AnswerTable t{"cheapest", "cheapest_contract", "The cheapest contract found that keeps 8, 11 or 16 bits",
                  "Sought from the errors of single points, then carried out; bits kept are those measured, of o or of the final state, whichever keeps fewer. Cost: bits that the stores hold per token and head. Chunks of 64, W/U, block inverse. fp16 costs what bf16 costs and holds three bits more, but nothing above 65504: the inputs stay far below.",
                  {"tokens#", "mean decay", "bits asked#", "bits kept#", "cost#", "share of fp32's cost#", "contract"}, {}};
    for (const std::string& gate : values(all, "gate"))
      for (const std::string& T : values(all, "T")) {
        const List list = where(where(all, "gate", gate), "T", T), base = where(list, "point", "none");
        for (const int bits : {8, 11, 16}) {
          const PrecisionPoint* best = nullptr;
          for (const PrecisionPoint* p : where(list, "bits", std::to_string(bits)))
            if (bits_of(*p) >= bits && (!best || p->cost < best->cost)) best = p;
          if (base.empty() || where(list, "bits", std::to_string(bits)).empty()) continue;
          const std::string share = best ? fmt::format("{:.0f} %", 100 * best->cost / base[0]->cost) : "-";
          t.rows.push_back({T, gate, std::to_string(bits), best ? bits_text(bits_of(*best)) : "-", best ? fmt::format("{:.0f}", best->cost) : "-", share, best ? best->contract : "none found"});
          if (best) say("cheapest", fmt::format("{} bits at {} tokens with {} cost {} of what fp32 stores hold: {} keeps {}.", bits, T, gate_text(gate), share, best->contract, bits_text(bits_of(*best))));
          else say("cheapest", fmt::format("No contract with fp32 sums was found that keeps {} bits at {} tokens with {}.", bits, T, gate_text(gate)));
        }
      }
    if (!t.rows.empty()) a_.tables.push_back(std::move(t));
  }

  // Studies of one axis: what lies between its best and its worst value, for every contract.
  void spread(const std::string& study, const std::string& name) {
    const List all = of(study);
    if (all.empty()) return;
    AnswerTable t{study, study + "_bits", "Bits kept", "Of o or of the final state, whichever keeps fewer.", {"contract"}, {}};
    const bool gates = name != "gate" && values(all, "gate").size() > 1;
    if (gates) t.columns.push_back("mean decay");
    const std::vector<std::string> along = values(all, name);
    for (const std::string& v : along) t.columns.push_back(name + " " + v + "#");
    t.columns.push_back("least to most#");
    struct Range { std::string contract, gate, least_at, most_at; double least = 0, most = 0; };
    std::vector<Range> ranges;
    for (const std::string& contract : values(all, "contract"))
      for (const std::string& gate : gates ? values(all, "gate") : std::vector<std::string>{""}) {
        List list = where(all, "contract", contract);
        if (gates) list = where(list, "gate", gate);
        if (list.empty()) continue;
        std::vector<std::string> row{contract};
        if (gates) row.push_back(gate);
        Range r{contract, gate, "", "", std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
        for (const std::string& v : along) {
          const List at = where(list, name, v);
          const double bits = at.empty() ? kNan : bits_of(*at[0]);
          row.push_back(bits_text(bits));
          if (bits < r.least) { r.least = bits; r.least_at = v; }
          if (bits > r.most) { r.most = bits; r.most_at = v; }
        }
        row.push_back(std::isfinite(r.most - r.least) ? fmt::format("{:.1f}", r.most - r.least) : "-");
        t.rows.push_back(std::move(row));
        if (std::isfinite(r.most - r.least)) ranges.push_back(std::move(r));
      }
    a_.tables.push_back(std::move(t));
    const auto widest = std::max_element(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.most - a.least < b.most - b.least; });
    const auto narrowest = std::min_element(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.most - a.least < b.most - b.least; });
    const auto one = [&](const Range& r) { return fmt::format("{}{}, which keeps {:.1f} bits at {} {} and {:.1f} at {}", r.contract, gates ? " with " + gate_text(r.gate) : "", r.least, name, r.least_at, r.most, r.most_at); };
    if (ranges.size() > 1 && along.size() > 1) say(study, fmt::format("{} matters most to {} ({:.1f} bits), and least to {} ({:.1f} bits).", name == "gate" ? "The decay" : name == "beta" ? "beta" : name == "keys" ? "The correlation of keys" : "The chunk size", one(*widest), widest->most - widest->least, one(*narrowest), narrowest->most - narrowest->least));
  }

  void inverse() {
    const List all = of("inverse");
    if (all.empty()) return;
    AnswerTable t{"inverse", "inverse_bits", "Ways to the inverse, bits kept", "Of o or of the final state, whichever keeps fewer; beta .835, mean decay .001, chunks of 64: 64 tokens show the inverse alone. neumann: log-depth products (I-L)(I+L^2)(I+L^4)...", {"contract", "vectors", "tokens#", "solve"}, {}};
    const std::vector<std::string> along = values(all, "keys");
    for (const std::string& k : along) t.columns.push_back("keys " + k + "#");
    for (const std::string& contract : values(all, "contract"))
      for (const std::string& vectors : values(all, "vectors"))
        for (const std::string& T : values(all, "T")) {
          const List some = where(where(where(all, "contract", contract), "vectors", vectors), "T", T);
          for (const std::string& solve : values(some, "solve")) {
            std::vector<std::string> row{contract, vectors, T, solve};
            for (const std::string& k : along) {
              const List at = where(where(some, "solve", solve), "keys", k);
              row.push_back(at.empty() ? "-" : bits_text(bits_of(*at[0])));
            }
            t.rows.push_back(std::move(row));
          }
          if (vectors != "wu" || T != values(all, "T").front()) continue;
          const auto error = [&](const char* solve, const std::string& k) {
            const List at = where(where(some, "solve", solve), "keys", k);
            return at.empty() ? std::string("-") : std::isinf(rms(at[0]->o_rms)) ? std::string("no finite") : short_number(rms(at[0]->o_rms));
          };
          say("inverse", fmt::format("The inverse by log-depth products in {}, one chunk of {} tokens: relative error of o {} on equal keys, {} at a mean cosine of {}, {} on uncorrelated ones; by substitution {}, {} and {}.", contract, T,
                                     error("neumann", "1"), error("neumann", "0.6"), "0.6", error("neumann", "0"), error("substitution", "1"), error("substitution", "0.6"), error("substitution", "0")));
        }
    a_.tables.push_back(std::move(t));
  }

  void rounding() {
    const List all = of("rounding");
    if (all.empty()) return;
    AnswerTable t{"rounding", "rounding_bits", "Rounding of all narrow points, bits kept", "Of o or of the final state, whichever keeps fewer.", {"contract", "tokens#", "nearest#", "toward zero#", "stochastic#"}, {}};
    for (const std::string& contract : values(all, "contract")) {
      const List some = where(all, "contract", contract);
      for (const std::string& T : values(some, "T")) {
        const auto bits = [&](const char* r) {
          const List at = where(where(some, "T", T), "rounding", r);
          return at.empty() ? kNan : bits_of(*at[0]);
        };
        t.rows.push_back({contract, T, bits_text(bits("rne")), bits_text(bits("rz")), bits_text(bits("sr"))});
        if (T == values(some, "T").back())
          say("rounding", fmt::format("{} at {} tokens keeps {} bits rounded to nearest, {} cut toward zero, {} rounded stochastically.", contract, T, bits_text(bits("rne")), bits_text(bits("rz")), bits_text(bits("sr"))));
      }
    }
    a_.tables.push_back(std::move(t));
  }

  void cadence() {
    const List all = of("cadence");
    if (all.empty()) return;
    AnswerTable t{"cadence", "cadence_bits", "A carried state in 16 bits, bits kept", fmt::format("Of o or of the final state, whichever keeps fewer. Calls of 1024 tokens, heads of {}.", all[0]->key_dim), {"contract", "mean decay"}, {}};
    for (const std::string& T : values(all, "T")) t.columns.push_back("T " + T + "#");
    for (const std::string& gate : values(all, "gate")) {
      std::string said;
      for (const std::string& contract : values(all, "contract")) {
        std::vector<std::string> row{contract, gate};
        double last = kNan;
        for (const std::string& T : values(all, "T")) {
          const List at = where(where(where(all, "contract", contract), "gate", gate), "T", T);
          last = at.empty() ? kNan : bits_of(*at[0]);
          row.push_back(bits_text(last));
        }
        t.rows.push_back(std::move(row));
        said += (said.empty() ? "" : ", ") + fmt::format("{} with {}", bits_text(last), contract);
      }
      say("cadence", fmt::format("After {} tokens with {} a state carried in 16 bits keeps, in bits: {}.", values(all, "T").back(), gate_text(gate), said));
    }
    a_.tables.push_back(std::move(t));
  }

  void accumulator() {
    const List all = of("accumulator");
    for (const std::string& contract : values(all, "contract")) {
      const List some = where(all, "contract", contract);
      const std::string T = values(some, "T").back();
      const List a = where(where(some, "accumulator", "fp32"), "T", T), b = where(where(some, "accumulator", "tensor_core"), "T", T);
      if (!a.empty() && !b.empty())
        say("accumulator", fmt::format("{} at {} tokens keeps {} bits with sums in fp32 to nearest and {} with sums cut as tensor cores do.", contract, T, bits_text(bits_of(*a[0])), bits_text(bits_of(*b[0]))));
    }
  }

  void bounds() {
    const List all = of("bounds");
    if (all.empty()) return;
    AnswerTable t{"bounds", "part_company", "Bound, sigma and measured error of o", "Root mean squares over elements, relative to the exact values. vacuous from: tokens from which the bound exceeds the signal. Exponents p of T^p over all T, with the 95 % interval over draws.",
                  {"contract", "mean decay", "bound / error, first T#", "last T#", "sigma / error, first T#", "last T#", "exponent of error#", "of sigma#", "of bound#", "vacuous from#"}, {}};
    std::vector<std::pair<double, std::string>> said;
    for (const std::string& contract : values(all, "contract"))
      for (const std::string& gate : values(all, "gate")) {
        const List list = by_tokens(where(where(all, "contract", contract), "gate", gate));
        if (list.empty() || list[0]->o_bound.empty()) continue;
        const PrecisionPoint &first = *list.front(), &last = *list.back();
        const auto ratio = [](const std::vector<double>& a, const std::vector<double>& b) { return rms(a) / rms(b); };
        std::string vacuous = "not yet";
        for (const PrecisionPoint* p : list)
          if (!(rms(p->o_bound) < 1)) {
            vacuous = std::to_string(p->tokens);
            break;
          }
        const PowerLaw e = law(list, [](const PrecisionPoint& p) -> const std::vector<double>& { return p.o_rms; }, 0), s = law(list, [](const PrecisionPoint& p) -> const std::vector<double>& { return p.o_sigma; }, 0),
                       b = law(list, [](const PrecisionPoint& p) -> const std::vector<double>& { return p.o_bound; }, 0);
        t.rows.push_back({contract, gate, short_number(ratio(first.o_bound, first.o_rms)), short_number(ratio(last.o_bound, last.o_rms)), short_number(ratio(first.o_sigma, first.o_rms)),
                          short_number(ratio(last.o_sigma, last.o_rms)), exponent_text(e), exponent_text(s), exponent_text(b), vacuous});
        const double apart = ratio(last.o_bound, last.o_rms);
        said.emplace_back(apart, fmt::format("{} with {}: the bound is {} times the measured error at {} tokens and {} times at {}, sigma {} and {} times; error grows as T^({}), sigma as T^({}), the bound as T^({}){}.", contract, gate_text(gate),
                                             short_number(ratio(first.o_bound, first.o_rms)), first.tokens, short_number(apart), last.tokens, short_number(ratio(first.o_sigma, first.o_rms)),
                                             short_number(ratio(last.o_sigma, last.o_rms)), exponent_text(e), exponent_text(s), exponent_text(b), vacuous == "not yet" ? "" : "; it exceeds the signal from " + vacuous + " tokens on"));
      }
    std::stable_sort(said.begin(), said.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    if (!said.empty()) say("bounds", "Bound and error part company least in " + said.front().second);
    if (said.size() > 1) say("bounds", "They part company most in " + said.back().second);
    if (!t.rows.empty()) a_.tables.push_back(std::move(t));
  }

  // "T=131072, K=32, gate=0, beta=0..1, keys=0.3": what tells the inputs of a study apart.
  static std::string short_inputs(const std::string& inputs) {
    std::string out;
    for (std::size_t at = 0; at < inputs.size();) {
      const std::string item = inputs.substr(at, inputs.find(',', at) - at);
      at += item.size() + 1;
      if (item.compare(0, 2, "T=") && item.compare(0, 2, "K=") && item.compare(0, 5, "gate=") && item.compare(0, 5, "beta=") && item.compare(0, 5, "keys=")) continue;
      out += (out.empty() ? "" : ", ") + item;
    }
    return out;
  }

  // Measured against the declared contract carried out on the same inputs.
  void kernels() {
    AnswerTable t{"", "kernels", "Kernels measured, beside their declared contracts carried out", "Ratio of the relative rms errors of o, measured / carried out, over all inputs of the studies: about 1 where the contract says what the kernel does; above it where the kernel orders its sums worse or its exponential is off, which a contract leaves free.",
                  {"kernel", "version", "device", "inputs#", "least#", "median#", "most#", "most at", "least bits kept#", "contract"}, {}};
    struct Ratio { double ratio; const PrecisionPoint* at; };
    std::vector<std::string> names;
    for (const auto& [study, list] : studies_)
      for (const PrecisionPoint* p : list)
        if (!p->kernel.empty() && std::find(names.begin(), names.end(), p->kernel) == names.end()) names.push_back(p->kernel);
    std::sort(names.begin(), names.end());         // whatever order they were measured in
    for (const std::string& name : names) {
      std::vector<Ratio> ratios;
      std::set<std::string> inputs;
      const PrecisionPoint* worst = nullptr;
      for (const auto& [study, list] : studies_)
        for (const PrecisionPoint* p : list) {
          if (p->kernel != name || !inputs.insert(p->inputs).second) continue;
          if (!worst || bits_of(*p) < bits_of(*worst)) worst = p;
          for (const PrecisionPoint* s : list)
            if (s->kernel.empty() && s->contract == p->contract && s->inputs == p->inputs) {
              ratios.push_back({rms(p->o_rms) / rms(s->o_rms), p});
              break;
            }
        }
      if (ratios.empty()) continue;
      std::stable_sort(ratios.begin(), ratios.end(), [](const Ratio& a, const Ratio& b) { return a.ratio < b.ratio; });
      const double median = ratios[ratios.size() / 2].ratio;
      const Ratio& most = ratios.back();
      std::string version = worst->kernel_version;
      for (const char* package : {"torch", "triton"})
        if (const auto at = worst->packages.find(package); at != worst->packages.end()) version += fmt::format(", {} {}", package, at->second);
      t.rows.push_back({name, version.empty() ? "-" : version, worst->device.empty() ? "-" : worst->device, std::to_string(ratios.size()), fmt::format("{:.3f}", ratios.front().ratio), fmt::format("{:.3f}", median), fmt::format("{:.3f}", most.ratio),
                        short_inputs(most.at->inputs), bits_text(bits_of(*worst)), worst->contract});
      say("", fmt::format("{} errs {:.2f} to {:.2f} times (median {:.2f}) as much as its contract carried out, on {} sets of inputs; most at {}, where it keeps {} bits.", name, ratios.front().ratio, most.ratio, median, ratios.size(),
                          short_inputs(most.at->inputs), bits_text(bits_kept(rms(most.at->o_rms)))));
    }
    if (!t.rows.empty()) a_.tables.push_back(std::move(t));
  }

  std::map<std::string, List> studies_;
  std::map<std::string, std::vector<std::string>> contracts_;
  Answers a_;
};

}  // namespace

double rms(const std::vector<double>& draws) {
  double sum = 0;
  for (const double x : draws) sum += x * x;
  return draws.empty() ? kNan : std::sqrt(sum / static_cast<double>(draws.size()));
}

double bits_kept(double relative_error) {
  if (std::isnan(relative_error) || std::isinf(relative_error)) return -std::numeric_limits<double>::infinity();
  return -std::log2(relative_error);
}

PowerLaw fit_power_law(const std::vector<double>& n, const std::vector<std::vector<double>>& y) {
  PowerLaw law{kNan, kNan, kNan, 0, 0};
  std::vector<std::size_t> used;
  std::size_t draws = n.empty() ? 0 : y[0].size();
  for (std::size_t i = 0; i < n.size(); ++i) {
    draws = std::min(draws, y[i].size());
    if (std::all_of(y[i].begin(), y[i].end(), [](double e) { return e > 0 && std::isfinite(e); })) used.push_back(i);
  }
  law.points = static_cast<int>(used.size());
  law.draws = static_cast<int>(draws);
  if (used.size() < 3 || draws == 0) return law;
  double x_mean = 0;
  for (const std::size_t i : used) x_mean += std::log2(n[i]) / static_cast<double>(used.size());
  std::vector<double> slopes;
  double offset = 0;
  for (std::size_t d = 0; d < draws; ++d) {
    double y_mean = 0, xx = 0, xy = 0;
    for (const std::size_t i : used) y_mean += std::log2(y[i][d]) / static_cast<double>(used.size());
    for (const std::size_t i : used) {
      const double x = std::log2(n[i]) - x_mean;
      xx += x * x;
      xy += x * (std::log2(y[i][d]) - y_mean);
    }
    slopes.push_back(xy / xx);
    offset += (y_mean - slopes.back() * x_mean) / static_cast<double>(draws);
  }
  law.exponent = 0;
  for (const double s : slopes) law.exponent += s / static_cast<double>(draws);
  double squares = 0;
  for (const double s : slopes) squares += (s - law.exponent) * (s - law.exponent);
  const auto D = static_cast<double>(draws);
  law.half_width = draws < 2 ? std::numeric_limits<double>::infinity() : student(static_cast<int>(draws)) * std::sqrt(squares / (D - 1) / D);
  law.factor = std::exp2(offset);
  return law;
}

Answers answers(const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies) { return Questions(points, studies).all(); }

}  // namespace reports

std::string precision_markdown(const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies, const std::vector<std::string>& commands) {
  using namespace reports;
  const Answers a = answers(points, studies);
  std::string s = fmt::format("# Error against precision\n\n{} points, by\n\n", points.size());
  for (const std::string& c : commands) s += "    " + printable(c) + "\n";
  s += "\nBits kept: -log2 of the relative rms error against certified truth.\n";
  if (!a.findings.empty()) s += "\n## Findings\n\n";
  for (const Answer& f : a.findings) s += "- " + printable(f.text) + (f.study.empty() ? "" : " (`--study " + f.study + "`)") + "\n";
  const auto cell = [](const std::string& text) {
    std::string out;
    for (const char c : printable(text)) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
  };
  for (const AnswerTable& t : a.tables) {
    s += "\n## " + t.title + "\n\n";
    if (!t.note.empty()) s += t.note + "\n\n";
    std::string rule = "|";
    s += "|";
    for (const std::string& c : t.columns) {
      const bool number = !c.empty() && c.back() == '#';
      s += " " + cell(number ? c.substr(0, c.size() - 1) : c) + " |";
      rule += number ? "--:|" : "---|";
    }
    s += "\n" + rule + "\n";
    for (const auto& row : t.rows) {
      s += "|";
      for (const std::string& c : row) s += " " + cell(c) + " |";
      s += "\n";
    }
  }
  return s;
}

}  // namespace gdn
