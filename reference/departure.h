// Departures from a contract, one point at a time: what a kernel would return that is exact but for one storage point
// kept coarser than the contract says. They give a failing kernel's error a name ("k_in in tf32"), and let the
// statistical check see a narrowing far below the rounding of everything else: its errors form a pattern that no
// kernel of the contract makes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

struct Departure {
  enum class At : std::uint8_t { point, gate_input, state_input, scale } at = At::point;
  Point point = Point::count;                      // of At::point
  Store store;                                     // what it is kept in
  std::string name;                                // "k_in in tf32"
};

// Every departure from the contract (narrowed to its problem) to a shorter format or to truncation, in canonical order:
// each point in tf32 (which keeps as many digits as fp16) and bf16 where it is declared longer, cut in tf32, bf16 or its own
// format where it is declared rounded to nearest; the gates, the initial state and the scale rounded before use. The carried state is taken to be rounded
// after every token or chunk, which departs from a contract that rounds it in the same format once per call.
std::vector<Departure> departures(const Contract& c);

// The contract's form in double with the departure alone (nullptr: with none), o [T,V] and ht [K,V]. The difference of the
// two is the error that the departure makes.
HeadResult depart(const Contract& c, const Departure* d, const HeadInputs& in, std::span<const std::int64_t> split = {});
// The contract carried out to nearest, with the departure: what a kernel that departs so really returns.
HeadResult depart_within(const Contract& c, const Departure& d, const HeadInputs& in, std::span<const std::int64_t> split = {});

}  // namespace gdn
