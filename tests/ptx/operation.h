#pragma once
// Instructions that compute the value of each lane from that lane's values: a function of numbers, made into a loop
// over lanes that the compiler vectorises.
#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/ptx/warp.h"

namespace elinvar::ptx {

struct Predicate {};  // stands for the type of a predicate, in an Operation's types

struct Operation {
  Execute execute = nullptr;
  size_t result_bytes = 0;  // of the register: 4, 8, or 0 for a predicate
  std::vector<size_t> source_bytes;
};
using Operations = std::map<std::string, Operation, std::less<>>;

// A register holds integers of 8 and 16 bits in 32.
template <class T>
using Stored = std::conditional_t<(sizeof(T) < 4), uint32_t, T>;
template <class T>
Stored<T> stored(T value) {
  if constexpr (sizeof(T) < 4) return static_cast<std::make_unsigned_t<T>>(value);
  else return value;
}
template <class T>
constexpr size_t kRegisterBytes = std::is_same_v<T, Predicate> ? 0 : sizeof(Stored<T>);

template <class F>
void each_lane(Lanes lanes, F f) {
  if (lanes == kAllLanes)
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  else
    for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
}

template <class T>
struct Source {
  Source(Warp& warp, int index) : values(warp.row<Stored<T>>(index)) {}
  T operator()(int lane) const { return static_cast<T>(values[lane]); }
  const Stored<T>* values;
};
template <>
struct Source<Predicate> {
  Source(Warp& warp, int index) : lanes(warp.predicates[static_cast<size_t>(index)]) {}
  bool operator()(int lane) const { return lanes >> lane & 1; }
  Lanes lanes;
};

// Partial marks functions that may only be called for lanes that take part, because they can fail.
template <bool partial, class F, class R, class... S, size_t... k>
void execute_operation(Warp& warp, const Instruction& i, Lanes lanes, std::index_sequence<k...>) {
  const std::tuple<Source<S>...> sources(Source<S>(warp, i.source[k])...);
  if constexpr (std::is_same_v<R, Predicate>) {
    Lanes value = 0;
    for (int lane = 0; lane < kLanes; ++lane) value |= Lanes{F{}(std::get<k>(sources)(lane)...)} << lane;
    Lanes& result = warp.predicates[static_cast<size_t>(i.result[0])];
    result = (value & lanes) | (result & ~lanes);
  } else {
    Stored<R>* const result = warp.row<Stored<R>>(i.result[0]);
    const auto value = [&](int lane) { return stored(static_cast<R>(F{}(std::get<k>(sources)(lane)...))); };
    if constexpr (partial) {
      each_lane(lanes, [&](int lane) { result[lane] = value(lane); });
    } else if (lanes == kAllLanes) {
#pragma GCC ivdep
      for (int lane = 0; lane < kLanes; ++lane) result[lane] = value(lane);
    } else {
#pragma GCC ivdep
      for (int lane = 0; lane < kLanes; ++lane) result[lane] = lanes >> lane & 1 ? value(lane) : result[lane];
    }
  }
}

// operation<R, S...>(f): an instruction whose result of type R is f of sources of the types S; f is a lambda without
// captures.
template <class R, class... S, class F>
Operation operation(F) {
  return {[](Warp& w, const Instruction& i, Lanes lanes) {
            execute_operation<false, F, R, S...>(w, i, lanes, std::index_sequence_for<S...>());
          },
          kRegisterBytes<R>,
          {kRegisterBytes<S>...}};
}
template <class R, class... S, class F>
Operation partial_operation(F) {
  return {[](Warp& w, const Instruction& i, Lanes lanes) {
            execute_operation<true, F, R, S...>(w, i, lanes, std::index_sequence_for<S...>());
          },
          kRegisterBytes<R>,
          {kRegisterBytes<S>...}};
}

// Added to the opcode of a conversion whose source is in a register of 64 bits though its type has fewer.
constexpr const char* kFromWide = " from 64 bits";

// Each family of instructions adds those that it knows, by opcode.
void add_integer_operations(Operations& all);
void add_bit_operations(Operations& all);
void add_floating_operations(Operations& all);
void add_conversions(Operations& all);

}  // namespace elinvar::ptx
