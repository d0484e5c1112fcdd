#include "tests/ptx/access.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "tests/ptx/decoder.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"
#include "tests/ptx/races.h"

namespace elinvar::ptx {
namespace {

[[noreturn]] void fail(const char* what, uint64_t address, int lane) {
  throw Fault(std::string(what) + ": address " + std::to_string(address) + " of lane " + std::to_string(lane));
}

Addresses addresses_of(Warp& warp, const Instruction& i) {
  Addresses at;
  const auto offset = static_cast<uint64_t>(i.offset);
  if (i.wide_address) {
    const uint64_t* const base = warp.row<uint64_t>(i.source[0]);
    for (size_t lane = 0; lane < kLanes; ++lane) at[lane] = base[lane] + offset;
  } else {
    const uint32_t* const base = warp.row<uint32_t>(i.source[0]);
    for (size_t lane = 0; lane < kLanes; ++lane) at[lane] = base[lane] + offset;
  }
  return at;
}

unsigned char* host(uint64_t address) { return reinterpret_cast<unsigned char*>(address); }

// Properties that hold for the addresses of all participating lanes.
struct Range {
  int64_t least = 0, most = 0, bits = 0;  // bits: those that any address has
};
Range range_of(const Addresses& at, Lanes lanes) {
  const auto some = static_cast<int64_t>(at[static_cast<size_t>(std::countr_zero(lanes))]);
  Range r{some, some, some};
  const auto add = [&](int lane) {
    const auto address = static_cast<int64_t>(at[static_cast<size_t>(lane)]);
    r.least = std::min(r.least, address);
    r.most = std::max(r.most, address);
    r.bits |= address;
  };
  each_lane(lanes, add);
  return r;
}

bool in_bytes_of_lane(const unsigned char* begin, size_t stride, size_t size, uint64_t at, size_t bytes, int lane) {
  const uint64_t first = reinterpret_cast<uint64_t>(begin) + static_cast<uint64_t>(lane) * stride;
  return at >= first && at + bytes <= first + size;
}

bool is_local(const Warp& warp, uint64_t at, size_t bytes, int lane) {
  const size_t size = warp.function->local_bytes;
  return in_bytes_of_lane(warp.local.data(), size, size, at, bytes, lane);
}

bool is_parameter(const Warp& warp, uint64_t at, size_t bytes, int lane) {
  const Function& function = *warp.function;
  return in_bytes_of_lane(warp.parameters, warp.parameter_stride, function.parameter_bytes, at, bytes, lane) ||
         in_bytes_of_lane(warp.call_arguments.data(), function.call_bytes, function.call_bytes, at, bytes, lane);
}

// A pointer to a thread's local memory may be passed to a function, whose own is elsewhere.
bool is_callers_local(const Warp& warp, uint64_t at, size_t bytes, int lane) {
  return warp.caller != nullptr && is_local(*warp.caller, at, bytes, lane);
}

void check_bounds(Warp& warp, const Instruction& i, const Addresses& at, Lanes lanes, Space space, size_t bytes) {
  const auto first = static_cast<size_t>(std::countr_zero(lanes));
  const bool uniform = std::ranges::all_of(at, [&](uint64_t a) { return a == at[first]; });
  if (uniform && space == Space::parameter) lanes = Lanes{1} << first;  // as in every kernel
  each_lane(lanes, [&](int lane) {
    const uint64_t a = at[static_cast<size_t>(lane)];
    const bool global =
        (space == Space::global || space == Space::generic) && warp.block->memory->contain(a, a + bytes, i.block);
    const bool local = (space == Space::local || space == Space::generic) &&
                       (is_local(warp, a, bytes, lane) || is_callers_local(warp, a, bytes, lane));
    const bool parameter = (space == Space::parameter || space == Space::generic) && is_parameter(warp, a, bytes, lane);
    if (!global && !local && !parameter) fail("not in the memory that this may access", a, lane);
  });
}

// Calls f with the number of elements as a constant.
template <class F>
void with_elements(const Instruction& i, F f) {
  switch (i.elements) {
    case 1:
      return f(std::integral_constant<size_t, 1>());
    case 2:
      return f(std::integral_constant<size_t, 2>());
    default:
      return f(std::integral_constant<size_t, 4>());
  }
}

template <class T, class Register>
void load(Warp& warp, const Instruction& i, Lanes lanes, Space space) {
  const Addresses from = locate(warp, i, lanes, space, sizeof(T) * i.elements, Access::read);
  with_elements(i, [&](auto count) {
    Register unused[kLanes];  // for "_"
    std::array<Register*, count> to;
    for (size_t k = 0; k < count; ++k) to[k] = i.result[k] < 0 ? unused : warp.row<Register>(i.result[k]);
    each_lane(lanes, [&](int lane) {
      std::array<T, count> values;
      std::memcpy(values.data(), host(from[static_cast<size_t>(lane)]), sizeof values);
      for (size_t k = 0; k < count; ++k) to[k][lane] = static_cast<Register>(values[k]);
    });
  });
}

template <class T, class Register>
void store(Warp& warp, const Instruction& i, Lanes lanes, Space space) {
  const Addresses to = locate(warp, i, lanes, space, sizeof(T) * i.elements, Access::write);
  with_elements(i, [&](auto count) {
    std::array<const Register*, count> from;
    for (size_t k = 0; k < count; ++k) from[k] = warp.row<Register>(i.source[1 + k]);
    each_lane(lanes, [&](int lane) {
      std::array<T, count> values;
      for (size_t k = 0; k < count; ++k) values[k] = static_cast<T>(from[k][lane]);
      std::memcpy(host(to[static_cast<size_t>(lane)]), values.data(), sizeof values);
    });
  });
}

// The lanes of a warp change memory one after another, in an order that CUDA does not promise.
void maximum(Warp& warp, const Instruction& i, Lanes lanes) {
  const Addresses to = locate(warp, i, lanes, Space::global, sizeof(int32_t), Access::atomic);
  const auto* const values = warp.row<int32_t>(i.source[1]);
  auto* const results = warp.row<int32_t>(i.result[0]);
  each_lane(lanes, [&](int lane) {
    unsigned char* const place = host(to[static_cast<size_t>(lane)]);
    int32_t before;
    std::memcpy(&before, place, sizeof before);
    const int32_t after = std::max(before, values[lane]);
    std::memcpy(place, &after, sizeof after);
    results[lane] = before;
  });
}

template <class T, class Register>
Execute access(bool loads, Space space) {
  const auto in = [&]<Space where>() -> Execute {
    if (loads) return [](Warp& w, const Instruction& i, Lanes lanes) { load<T, Register>(w, i, lanes, where); };
    return [](Warp& w, const Instruction& i, Lanes lanes) { store<T, Register>(w, i, lanes, where); };
  };
  switch (space) {
    case Space::global:
      return in.template operator()<Space::global>();
    case Space::shared:
      return in.template operator()<Space::shared>();
    case Space::local:
      return in.template operator()<Space::local>();
    case Space::parameter:
      return in.template operator()<Space::parameter>();
    case Space::generic:
      return in.template operator()<Space::generic>();
  }
  return nullptr;
}

// The register may be wider than what is loaded or stored.
template <class T>
Execute access(bool loads, Space space, size_t register_bytes) {
  if (register_bytes == 8) return access<T, uint64_t>(loads, space);
  if constexpr (sizeof(T) <= 4) return access<T, uint32_t>(loads, space);
  else return nullptr;
}

Execute access(const std::string& type, bool loads, Space space, size_t register_bytes) {
  if (type == "u8" || type == "b8") return access<uint8_t>(loads, space, register_bytes);
  if (type == "s8") return access<int8_t>(loads, space, register_bytes);
  if (type == "u16" || type == "b16") return access<uint16_t>(loads, space, register_bytes);
  if (type == "s16") return access<int16_t>(loads, space, register_bytes);
  if (type == "u32" || type == "b32" || type == "f32") return access<uint32_t>(loads, space, register_bytes);
  if (type == "s32") return access<int32_t>(loads, space, register_bytes);
  if (type == "u64" || type == "b64" || type == "s64" || type == "f64")
    return access<uint64_t>(loads, space, register_bytes);
  return nullptr;
}

std::optional<Space> space_named(const std::string& word) {
  if (word == "global") return Space::global;
  if (word == "shared") return Space::shared;
  if (word == "local") return Space::local;
  if (word == "param") return Space::parameter;
  return std::nullopt;
}

}  // namespace

Addresses locate(Warp& warp, const Instruction& i, Lanes lanes, Space space, size_t bytes, Access kind) {
  Addresses at = addresses_of(warp, i);
  const bool shared = space == Space::shared;
  if (shared)  // addresses are offsets of 32 bits
    for (uint64_t& address : at) address &= 0xffffffffu;
  const Range range = range_of(at, lanes);
  const auto each_address = [&](auto f) {
    each_lane(lanes, [&](int lane) { f(at[static_cast<size_t>(lane)], lane); });
  };
  if ((static_cast<uint64_t>(range.bits) & (bytes - 1)) != 0)
    each_address([&](uint64_t address, int lane) {
      if (address % bytes != 0) fail("not aligned", address, lane);
    });
  const uint64_t least = static_cast<uint64_t>(range.least), end = static_cast<uint64_t>(range.most) + bytes;
  if (shared) {
    if (end > warp.block->shared.size())
      each_address([&](uint64_t address, int lane) {
        if (address + bytes > warp.block->shared.size()) fail("beyond the block's shared memory", address, lane);
      });
    const uint64_t base = reinterpret_cast<uint64_t>(warp.block->shared.data());
    for (uint64_t& address : at) address += base;
  } else if (space == Space::local || space == Space::parameter || !warp.block->memory->contain(least, end, i.block)) {
    check_bounds(warp, i, at, lanes, space, bytes);
  }
  if (warp.block->races == nullptr || space == Space::local || space == Space::parameter) return at;
  each_address([&](uint64_t address, int lane) {
    Memory::Extent seen;
    if (space == Space::generic && !warp.block->memory->find(address, address + bytes, seen)) return;  // its own
    warp.block->races->access(warp, lane, host(address), bytes, shared, kind);
  });
  return at;
}

unsigned char* shared_place(Warp& warp, uint32_t address, size_t bytes) {
  if (address % bytes != 0) fail("not aligned", address, 0);
  if (address + bytes > warp.block->shared.size()) fail("beyond the block's shared memory", address, 0);
  return warp.block->shared.data() + address;
}

const unsigned char* global_place(Warp& warp, uint64_t address, size_t bytes, size_t given, const Instruction& i) {
  if (address % bytes != 0) fail("not aligned", address, 0);
  if (!warp.block->memory->contain(address, address + given, i.block)) fail("not in global memory", address, 0);
  return host(address);
}

bool decode_atomic(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.opcode != "atom.global.max.s32" || s.operands.size() != 3) return false;
  i.result[0] = decoder.row(s.operands[0], 4);
  i.source[0] = decoder.address(s.operands[1], i);
  i.source[1] = decoder.row(s.operands[2], 4);
  i.execute = maximum;
  return true;
}

bool decode_access(Decoder& decoder, const Statement& s, Instruction& i) {
  const bool loads = s.opcode.starts_with("ld.");
  Space space = Space::generic;
  size_t elements = 1;
  std::string type;
  for (size_t at = 3; at < s.opcode.size();) {
    const size_t end = std::min(s.opcode.find('.', at), s.opcode.size());
    const std::string word = s.opcode.substr(at, end - at);
    if (const auto named = space_named(word)) space = *named;
    else if (word == "v2" || word == "v4") elements = static_cast<size_t>(word[1] - '0');
    else if (word != "nc") type += word;
    at = end + 1;
  }
  if (s.operands.size() != 2) return false;
  const std::string& place = s.operands[loads ? 1 : 0];
  const std::vector<std::string> values = elements_of(s.operands[loads ? 0 : 1]);
  if (values.size() != elements) return false;
  i.elements = static_cast<uint8_t>(elements);
  i.source[0] = decoder.address(place, i);
  const size_t least = type.ends_with("64") ? 8 : 4;
  size_t bytes = least;
  for (const std::string& value : values)
    if (decoder.is_register(value)) bytes = decoder.bytes_of(value);
  for (size_t k = 0; k < elements; ++k) {
    if (loads && values[k] == "_") continue;
    (loads ? i.result[k] : i.source[1 + k]) = decoder.row(values[k], bytes);
  }
  i.execute = access(type, loads, space, bytes);
  return i.execute != nullptr;
}

}  // namespace elinvar::ptx
