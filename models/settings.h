#pragma once
// Typed reading of a ModelSpec. A builder asks for each setting it knows, with its default, and ends with finish(),
// which refuses whatever was not asked for; so the settings of a kind are documented by the code that reads them.
// Every error is a UsageError such as
//   [model] line 12: unknown setting 'dropuot' of 'gpt'; did you mean 'dropout'?
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"
#include "tensor/check.h"

namespace elinvar {

class Settings {
 public:
  // With `resolved`, every setting that is asked for is written there with the value that it gets.
  explicit Settings(const ModelSpec& spec, ModelSpec* resolved = nullptr);

  // Absent settings have the default; without one they are an error. Numbers must lie in the stated range.
  int64_t integer(const std::string& name, std::optional<int64_t> otherwise, int64_t least = 1,
                  int64_t most = int64_t{1} << 24);
  double real(const std::string& name, double otherwise, double least, double most);
  bool boolean(const std::string& name, bool otherwise);
  std::string choice(const std::string& name, const std::string& otherwise, const std::vector<std::string>& valid);
  std::string text(const std::string& name, const std::string& otherwise);  // anything
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& otherwise, int64_t least = 1);
  // One number for both directions, or [height, width]; returned as two.
  std::array<int64_t, 2> extent(const std::string& name, std::array<int64_t, 2> otherwise, int64_t least = 1);

  // The layers of a list (none if absent), and where the resolved form of each is to be written.
  struct Entry {
    const ModelSpec& spec;
    ModelSpec* resolved;
  };
  std::vector<Entry> list(const std::string& name);
  bool has_list(const std::string& name) const { return spec_.lists.count(name) > 0; }

  void finish() const;

  const std::string& kind() const { return spec_.kind; }
  int line() const { return spec_.line; }

  // Throws, naming the line of setting `name` (or of the whole table if it has none).
  template <class... Args>
  void require(bool ok, const std::string& name, fmt::format_string<Args...> message, Args&&... args) const {
    if (!ok) refuse(name, fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& message) const;
  const Value* find(const std::string& name);
  template <class T>
  T resolve(const std::string& name, T value);

  const ModelSpec& spec_;
  ModelSpec* resolved_;
  std::vector<std::string> known_;
};

}  // namespace elinvar
