#pragma once
// The kinds of something that a configuration may name: built-in ones, and those that a program adds. Add kinds at the
// start of main(), before other threads look them up.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {

// `Kind` has a member `name`. Pointers to kinds stay valid until the next add().
template <class Kind>
class Registry {
 public:
  explicit Registry(std::vector<Kind> built_in) : kinds_(std::move(built_in)), built_in_(kinds_.size()) {}

  // Throws UsageError if the name is taken or empty. `table` is the table of a configuration that names it: "model".
  void add(Kind kind, std::string_view table) {
    check(!kind.name.empty(), "[{}] a kind needs a name, got ''", table);
    check(find(kind.name) == nullptr, "[{}] there is a kind '{}' already; choose another name", table, kind.name);
    kinds_.push_back(std::move(kind));
  }

  const Kind* find(std::string_view name) const {
    for (const Kind& kind : kinds_)
      if (kind.name == name) return &kind;
    return nullptr;
  }
  bool built_in(std::string_view name) const {
    const Kind* kind = find(name);
    return kind != nullptr && kind < kinds_.data() + built_in_;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Kind& kind : kinds_) all.emplace_back(kind.name);
    return all;
  }

 private:
  std::vector<Kind> kinds_;
  size_t built_in_;
};

}  // namespace elinvar
