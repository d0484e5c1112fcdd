#pragma once
// The fields of a struct, listed once within it, for code that visits all of them by name (tensor/trace.h).
//
//   struct Interval {
//     int64_t first = 0, last = 0;
//     ELINVAR_FIELDS(first, last)
//   };
//   each_field(interval, [](std::string_view name, auto& field) { ... });
//
// The list must have every field, in order of declaration. A list that lacks a field does not compile where it is
// visited.
#include <algorithm>
#include <cstddef>
#include <string_view>

#define ELINVAR_FIELDS(...)                                \
  static constexpr const char* field_names = #__VA_ARGS__; \
  template <class Struct, class Visit>                     \
  static void visit_fields(Struct& self, Visit visit) {    \
    auto& [__VA_ARGS__] = self;                            \
    visit(__VA_ARGS__);                                    \
  }

namespace elinvar {

template <class T>
concept HasFields = requires {
  T::field_names;
};

// Calls f(name, field) for each field of s, which may be const.
template <HasFields T, class F>
void each_field(T& s, F f) {
  T::visit_fields(s, [&](auto&... field) {
    std::string_view names = T::field_names;
    const auto next = [&] {
      const size_t end = std::min(names.find(','), names.size());
      const std::string_view name = names.substr(0, end);
      names.remove_prefix(std::min(names.size(), end + 2));  // past ", "
      return name;
    };
    (f(next(), field), ...);
  });
}

}  // namespace elinvar
