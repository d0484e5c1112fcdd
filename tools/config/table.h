#pragma once
// Reads tables of a TOML file into plain structs, strictly: an unknown key and a value of another type or out of range
// throw UsageError with the file, the line, the key and, for a misspelt key, the probable one.
//
// A struct's keys are listed once, in a function over a visitor:
//
//   template <class V> void visit(V& v, RunConfig& c) { v("keep", c.keep, AtLeast{1}); ... }
//
// TableReader fills the struct from it, and TableWriter writes it back with every default.
#include <toml++/toml.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/config/places.h"

namespace elinvar {

// Rules for a value besides its type. complaint() returns "" if the value is valid.
struct Anything {
  template <class T>
  std::string complaint(const T&) const {
    return "";
  }
};
struct AtLeast {
  double least;
  template <class T>
  std::string complaint(const T& value) const;
};
struct Between {
  double least, most;
  template <class T>
  std::string complaint(const T& value) const;
};
struct OneOf {
  std::vector<std::string> names;
  std::string complaint(const std::string& value) const;
};

// The tables in which each key is known, for suggestions in messages.
using KeyHomes = std::map<std::string, std::set<std::string>>;

// A parsed file with `--set` overrides applied.
class TomlSource {
 public:
  // `name` stands for the text in messages. Overrides are "table.key=value" with a TOML value; a value that is not
  // valid TOML is taken as text.
  TomlSource(std::string_view text, std::string name, const std::vector<std::string>& overrides = {});

  const toml::table& root() const { return root_; }
  // The table of that name; empty if absent.
  const toml::table& table(const std::string& name) const;
  // Returns the place of `node`, which is the value of `key` or lies within it.
  std::string where(const std::string& key, const toml::node& node) const;
  Places places() const;
  // `homes` has the tables that each key can be in, for a key that is outside all of them.
  void refuse_unknown_tables(const std::vector<std::string>& known, const KeyHomes& homes = {}) const;

 private:
  void override_with(const std::string& assignment);
  std::string name_;
  toml::table root_;
  std::set<std::string> overridden_;  // full keys
};

class TableReader {
 public:
  TableReader(const TomlSource& source, std::string table);

  template <class T, class Rule = Anything>
  void operator()(const char* key, T& value, const Rule& rule = {}) {
    known_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    convert(key, *node, value);
    complain(key, *node, rule.complaint(value));
  }
  bool has(const char* key) const { return table_.contains(key); }
  const std::vector<std::string>& known() const { return known_; }  // the keys read so far
  void refuse_unknown_keys(const KeyHomes& homes = {}) const;       // call after the last key
  [[noreturn]] void refuse(const char* key, const std::string& complaint) const;

 private:
  void convert(const char* key, const toml::node& node, bool& value) const;
  void convert(const char* key, const toml::node& node, int& value) const;
  void convert(const char* key, const toml::node& node, int64_t& value) const;
  void convert(const char* key, const toml::node& node, uint64_t& value) const;
  void convert(const char* key, const toml::node& node, double& value) const;  // accepts integers
  void convert(const char* key, const toml::node& node, std::string& value) const;
  template <class T>
  void convert(const char* key, const toml::node& node, std::vector<T>& values) const {
    const toml::array* array = node.as_array();
    if (array == nullptr) wrong_type(key, node, "an array");
    values.clear();
    for (const toml::node& element : *array) convert(key, element, values.emplace_back());
  }
  [[noreturn]] void wrong_type(const char* key, const toml::node& node, const char* expected) const;
  void complain(const char* key, const toml::node& node, const std::string& complaint) const;

  const TomlSource& source_;
  std::string name_;
  const toml::table& table_;
  std::vector<std::string> known_;
};

// Keys and their values as TOML text, in the order of the visits.
class TableWriter {
 public:
  template <class T, class Rule = Anything>
  void operator()(const char* key, T& value, const Rule& = {}) {
    entries_.emplace_back(key, text(value));
  }
  const std::vector<std::pair<std::string, std::string>>& entries() const { return entries_; }

  static std::string text(bool value);
  static std::string text(int value) { return text(int64_t{value}); }
  static std::string text(int64_t value);
  static std::string text(uint64_t value);
  static std::string text(double value);  // the shortest text that reads back as the same bits
  static std::string text(const std::string& value);
  template <class T>
  static std::string text(const std::vector<T>& values) {
    std::string all;
    for (const T& value : values) all += (all.empty() ? "" : ", ") + text(value);
    return "[" + all + "]";
  }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
};

template <class T>
std::string AtLeast::complaint(const T& value) const {
  if (static_cast<double>(value) >= least) return "";
  return "must be at least " + TableWriter::text(static_cast<T>(least)) + ", got " + TableWriter::text(value);
}

template <class T>
std::string Between::complaint(const T& value) const {
  if (static_cast<double>(value) >= least && static_cast<double>(value) <= most) return "";
  return "must lie between " + TableWriter::text(static_cast<T>(least)) + " and " +
         TableWriter::text(static_cast<T>(most)) + ", got " + TableWriter::text(value);
}

}  // namespace elinvar
