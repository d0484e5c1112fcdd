#pragma once
// Typed reading of a ModelSpec. A builder asks for each setting it knows, with its default, and ends with finish(),
// which refuses whatever was not asked for; so the settings of a kind are documented by the code that reads them.
// Every error is a UsageError such as
//   my.toml:12: model.dropuot is no setting of 'gpt'; did you mean 'dropout'?
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"
#include "nn/parameters.h"
#include "tensor/base/check.h"

namespace elinvar {

class Settings {
 public:
  // With `resolved`, every setting that is asked for is written there with the value that it gets. `table` is what the
  // spec is called in messages.
  explicit Settings(const ModelSpec& spec, ModelSpec* resolved = nullptr, std::string table = "model");

  // Absent settings have the default; without one they are an error. Numbers must lie in the stated range.
  int64_t integer(const std::string& name, std::optional<int64_t> otherwise, int64_t least = 1,
                  int64_t most = int64_t{1} << 24);
  double real(const std::string& name, double otherwise, double least, double most);
  bool boolean(const std::string& name, bool otherwise);
  std::string choice(const std::string& name, const std::string& otherwise, const std::vector<std::string>& valid);
  std::string text(const std::string& name, const std::string& otherwise);  // anything
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& otherwise, int64_t least = 1,
                                int64_t most = int64_t{1} << 24);
  // One number for both directions, or [height, width]; returned as two.
  std::array<int64_t, 2> extent(const std::string& name, std::array<int64_t, 2> otherwise, int64_t least = 1);

  // The settings of each table in a list; none if it is absent.
  std::vector<Settings> list(const std::string& name);
  bool has(const std::string& name) const { return spec_.settings.count(name) > 0; }
  bool has_list(const std::string& name) const { return spec_.lists.count(name) > 0; }

  void finish() const;

  // Calls f() and rethrows a ParameterError (nn/parameters.h) with the place of this setting.
  template <class F>
  auto create(F f) const {
    try {
      return f();
    } catch (const ParameterError& error) {
      refuse("kind", fmt::format("= '{}': {}", kind(), error.what()));
    }
  }

  const ModelSpec& spec() const { return spec_; }
  const std::string& kind() const { return spec_.kind; }

  // Throws "<place>: <table>.<name> <complaint>" with the place of setting `name`, or of the kind if it is not set.
  template <class... Args>
  void require(bool ok, const std::string& name, fmt::format_string<Args...> complaint, Args&&... args) const {
    if (!ok) refuse(name, fmt::format(complaint, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& complaint) const;
  const Value* find(const std::string& name);
  template <class T>
  T resolve(const std::string& name, T value);

  const ModelSpec& spec_;
  ModelSpec* resolved_;
  std::string table_;
  std::vector<std::string> known_;
};

}  // namespace elinvar
