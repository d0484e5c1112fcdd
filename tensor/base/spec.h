#pragma once
// The settings of one thing that a configuration names by kind: a network, a layer of it, a data set, an optimiser. A
// Spec holds them as written, before anything is built, with the places that errors name:
//
//   [model]                         Spec{kind = "layers", lists = {{"layer", {
//   [[model.layer]]                   Spec{kind = "conv2d", settings = {{"out", {16, "a.toml:4"}}}},
//   kind = "conv2d"                   Spec{kind = "residual", lists = {{"layer", {...}}}}}}}}
//   out = 16
//   [[model.layer]]
//   kind = "residual"
//   layer = [{kind = "conv2d", out = 16}, {kind = "batch_norm"}]
//
// Every key but `kind` whose value is an array of tables is a list; every other key is a setting.
//
// Settings reads a Spec with types. The code that builds the thing asks for each setting that it knows, with its
// default; finish() refuses every setting that was not asked for. So the code that reads the settings of a kind
// documents them. Every error is a UsageError such as
//   my.toml:12: model.dropuot is no setting of 'gpt'; did you mean 'dropout'?
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {

using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                           std::vector<std::string>>;

struct Setting {
  Value value;
  std::string place = {};  // empty if it is not from a configuration
};

struct Spec {
  std::string kind = {};
  std::map<std::string, Setting> settings = {};
  std::map<std::string, std::vector<Spec>> lists = {};
  std::string place = {};  // of the kind, or of the whole table if it has none
};

class Settings {
 public:
  // With `resolved`, writes every setting that is asked for there, with the value that it gets. Messages call the spec
  // `table`.
  Settings(const Spec& spec, std::string table, Spec* resolved = nullptr);

  // An absent setting has the default; without a default it is an error. Numbers must lie in the stated range.
  int64_t integer(const std::string& name, std::optional<int64_t> otherwise, int64_t least = 1,
                  int64_t most = int64_t{1} << 24);
  double real(const std::string& name, double otherwise, double least, double most);
  bool boolean(const std::string& name, bool otherwise);
  std::string choice(const std::string& name, const std::string& otherwise, const std::vector<std::string>& valid);
  std::string text(const std::string& name, const std::string& otherwise);  // anything
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& otherwise, int64_t least = 1,
                                int64_t most = int64_t{1} << 24);
  std::vector<double> reals(const std::string& name, const std::vector<double>& otherwise, double least, double most);
  std::vector<std::string> texts(const std::string& name, const std::vector<std::string>& otherwise);
  // One number for both directions, or [height, width]; returned as two.
  std::array<int64_t, 2> extent(const std::string& name, std::array<int64_t, 2> otherwise, int64_t least = 1);

  // The settings of each table in a list; none if it is absent.
  std::vector<Settings> list(const std::string& name);
  bool has(const std::string& name) const { return spec_.settings.count(name) > 0; }
  bool has_list(const std::string& name) const { return spec_.lists.count(name) > 0; }

  void finish() const;

  const Spec& spec() const { return spec_; }
  const std::string& kind() const { return spec_.kind; }

  [[noreturn]] void refuse(const std::string& name, const std::string& complaint) const;
  // Unless `ok`, throws "<place>: <table>.<name> <complaint>" with the place of setting `name`, or of the kind if it is
  // not set.
  template <class... Args>
  void require(bool ok, const std::string& name, fmt::format_string<Args...> complaint, Args&&... args) const {
    if (!ok) refuse(name, fmt::format(complaint, std::forward<Args>(args)...));
  }

 private:
  const Value* find(const std::string& name);
  template <class T>
  T resolve(const std::string& name, T value);

  const Spec& spec_;
  Spec* resolved_;
  std::string table_;
  std::vector<std::string> known_;
};

}  // namespace elinvar
