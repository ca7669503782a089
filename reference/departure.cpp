// Departures from a contract; see departure.h.
#include "reference/departure.h"

#include "reference/simulate.h"

namespace gdn {
namespace {

Store store_of(Format f, Rounding r) { return Store{f, 1, r, Subnormals::keep}; }

// Digits that the contract keeps at a point: those of the arithmetic where the store costs nothing of its own.
int digits(const Contract& c, Point p) {
  const Store& s = unit(c, p) > 0 ? c.at(p) : arithmetic(c);
  return info(s.format).precision * s.terms;
}

bool nearest(const Store& s) { return s.rounding == Rounding::nearest_even || s.rounding == Rounding::nearest_away; }

// tf32 stands for fp16 too: both keep 11 digits.
constexpr struct { Format format; Rounding rounding; } kShorter[] = {{Format::tf32, Rounding::nearest_even}, {Format::bf16, Rounding::nearest_even},
    {Format::tf32, Rounding::toward_zero}, {Format::bf16, Rounding::toward_zero}};

}  // namespace

std::vector<Departure> departures(const Contract& c) {
  std::vector<Departure> all;
  const auto add = [&](Departure::At at, Point p, const Store& s, const std::string& name) { all.push_back({at, p, s, name + " in " + to_string(s)}); };
  for (std::size_t i = 0; i < kPoints; ++i) {
    const auto p = static_cast<Point>(i);
    if (!uses(c, p)) continue;
    const Store& declared = c.at(p);
    for (const auto& s : kShorter)
      if (info(s.format).precision < digits(c, p)) add(Departure::At::point, p, store_of(s.format, s.rounding), name(p));
    if (unit(c, p) > 0 && declared.terms == 1 && nearest(declared)) {
      Store cut = declared;
      cut.rounding = Rounding::toward_zero;
      add(Departure::At::point, p, cut, name(p));
    }
  }
  if (c.cadence == Cadence::call && unit(c, Point::S_carried) > 0) {
    add(Departure::At::point, Point::S_carried, c.at(Point::S_carried), name(Point::S_carried));
    all.back().name += c.form == Form::recurrent ? " after every token" : " after every chunk";
  }
  for (const Format f : {Format::tf32, Format::bf16}) {
    const Store s = store_of(f, Rounding::nearest_even);
    if (info(f).precision < digits(c, Point::G)) add(Departure::At::gate_input, Point::G, s, "g before its sum");
    if (info(f).precision < digits(c, Point::S_carried)) add(Departure::At::state_input, Point::S_carried, s, "h0");
    if (info(f).precision < info(arithmetic(c).format).precision) add(Departure::At::scale, Point::out, s, "scale");
  }
  return all;
}

namespace {

HeadResult carry_out(Contract c, const Departure* d, const HeadInputs& in, std::span<const std::int64_t> split) {
  if (!d) return simulate(c, in, SimulationMode::nearest, 0, split);
  if (d->at == Departure::At::point) {
    c.at(d->point) = d->store;
    if (d->point == Point::S_carried) c.cadence = c.form == Form::recurrent ? Cadence::token : Cadence::chunk;
    return simulate(c, in, SimulationMode::nearest, 0, split);
  }
  HeadInputs rounded = in;
  const auto round = [&](float& x) { x = static_cast<float>(round_to(static_cast<double>(x), d->store)); };
  if (d->at == Departure::At::gate_input)
    for (float& x : rounded.g) round(x);
  if (d->at == Departure::At::state_input)
    for (float& x : rounded.h0) round(x);
  if (d->at == Departure::At::scale) rounded.scale = round_to(in.scale, d->store);
  return simulate(c, rounded, SimulationMode::nearest, 0, split);
}

}  // namespace

HeadResult depart(const Contract& c, const Departure* d, const HeadInputs& in, std::span<const std::int64_t> split) {
  Contract exact = c;
  exact.accumulator = Accumulator::fp64;
  exact.fma = false;
  exact.points.fill(Store{Format::fp64, 1, Rounding::nearest_even, Subnormals::keep});
  return carry_out(exact, d, in, split);
}

HeadResult depart_within(const Contract& c, const Departure& d, const HeadInputs& in, std::span<const std::int64_t> split) {
  return carry_out(c, &d, in, split);
}

}  // namespace gdn
