#include "tensor/base/spec.h"

#include <algorithm>

#include "tensor/base/spelling.h"

namespace elinvar {

namespace {

constexpr size_t kMostElements = 16384;  // per list

const char* type_name(const Value& value) {
  static constexpr const char* kNames[] = {"a boolean",          "an integer",        "a number",         "a string",
                                           "a list of integers", "a list of numbers", "a list of strings"};
  return kNames[value.index()];
}

}  // namespace

Settings::Settings(const Spec& spec, std::string table, Spec* resolved)
    : spec_(spec), resolved_(resolved), table_(std::move(table)) {
  if (!resolved_) return;
  resolved_->kind = spec.kind;
  resolved_->place = spec.place;
}

void Settings::refuse(const std::string& name, const std::string& complaint) const {
  const auto it = spec_.settings.find(name);
  const std::string& place = it != spec_.settings.end() ? it->second.place : spec_.place;
  throw UsageError(fmt::format("{}{}{}.{} {}", place, place.empty() ? "" : ": ", table_, name, complaint));
}

const Value* Settings::find(const std::string& name) {
  known_.push_back(name);
  const auto it = spec_.settings.find(name);
  return it == spec_.settings.end() ? nullptr : &it->second.value;
}

template <class T>
T Settings::resolve(const std::string& name, T value) {
  if (resolved_) resolved_->settings[name] = {value};
  return value;
}

int64_t Settings::integer(const std::string& name, std::optional<int64_t> otherwise, int64_t least, int64_t most) {
  const Value* value = find(name);
  require(value || otherwise, name, "is missing: '{}' needs an integer of at least {}", kind(), least);
  if (!value) return resolve(name, *otherwise);
  const auto* number = std::get_if<int64_t>(value);
  require(number, name, "must be an integer, got {}", type_name(*value));
  require(*number >= least && *number <= most, name, "must lie between {} and {}, got {}", least, most, *number);
  return resolve(name, *number);
}

double Settings::real(const std::string& name, double otherwise, double least, double most) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  const auto* whole = std::get_if<int64_t>(value);
  const auto* number = std::get_if<double>(value);
  require(whole || number, name, "must be a number, got {}", type_name(*value));
  const double x = number ? *number : static_cast<double>(*whole);
  require(x >= least && x <= most, name, "must lie between {} and {}, got {}", least, most, x);
  return resolve(name, x);
}

bool Settings::boolean(const std::string& name, bool otherwise) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  require(std::holds_alternative<bool>(*value), name, "must be true or false, got {}", type_name(*value));
  return resolve(name, std::get<bool>(*value));
}

std::string Settings::choice(const std::string& name, const std::string& otherwise,
                             const std::vector<std::string>& valid) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  const auto* text = std::get_if<std::string>(value);
  require(text, name, "must be a string, got {}", type_name(*value));
  require(std::ranges::find(valid, *text) != valid.end(), name, "does not know '{}'{}", *text,
          spelling_hint(*text, valid));
  return resolve(name, *text);
}

std::string Settings::text(const std::string& name, const std::string& otherwise) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  const auto* text = std::get_if<std::string>(value);
  require(text, name, "must be a string, got {}", type_name(*value));
  return resolve(name, *text);
}

std::vector<int64_t> Settings::integers(const std::string& name, const std::vector<int64_t>& otherwise, int64_t least,
                                        int64_t most) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  const auto* numbers = std::get_if<std::vector<int64_t>>(value);
  require(numbers, name, "must be a list of integers, got {}", type_name(*value));
  require(numbers->size() <= kMostElements, name, "must hold at most {} integers, got {}", kMostElements,
          numbers->size());
  for (int64_t n : *numbers)
    require(n >= least && n <= most, name, "must hold integers from {} to {}, got {}", least, most, n);
  return resolve(name, *numbers);
}

std::vector<double> Settings::reals(const std::string& name, const std::vector<double>& otherwise, double least,
                                    double most) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  std::vector<double> numbers;
  if (const auto* whole = std::get_if<std::vector<int64_t>>(value)) numbers.assign(whole->begin(), whole->end());
  else if (const auto* given = std::get_if<std::vector<double>>(value)) numbers = *given;
  else require(false, name, "must be a list of numbers, got {}", type_name(*value));
  require(numbers.size() <= kMostElements, name, "must hold at most {} numbers, got {}", kMostElements, numbers.size());
  for (const double x : numbers)
    require(x >= least && x <= most, name, "must hold numbers from {} to {}, got {}", least, most, x);
  return resolve(name, numbers);
}

std::vector<std::string> Settings::texts(const std::string& name, const std::vector<std::string>& otherwise) {
  const Value* value = find(name);
  if (!value) return resolve(name, otherwise);
  if (const auto* none = std::get_if<std::vector<int64_t>>(value); none && none->empty())
    return resolve(name, std::vector<std::string>());  // an empty list has no type
  const auto* texts = std::get_if<std::vector<std::string>>(value);
  require(texts, name, "must be a list of strings, got {}", type_name(*value));
  return resolve(name, *texts);
}

std::array<int64_t, 2> Settings::extent(const std::string& name, std::array<int64_t, 2> otherwise, int64_t least) {
  const auto it = spec_.settings.find(name);
  const bool given = it != spec_.settings.end(), single = otherwise[0] == otherwise[1];
  if (given ? !std::holds_alternative<std::vector<int64_t>>(it->second.value) : single) {
    const int64_t both = integer(name, otherwise[0], least);
    return {both, both};
  }
  const std::vector<int64_t> pair = integers(name, {otherwise[0], otherwise[1]}, least);
  require(pair.size() == 2, name, "must be one integer or [height, width], got {} numbers", pair.size());
  return {pair[0], pair[1]};
}

std::vector<Settings> Settings::list(const std::string& name) {
  known_.push_back(name);
  std::vector<Settings> entries;
  const auto it = spec_.lists.find(name);
  if (it == spec_.lists.end()) return entries;
  std::vector<Spec>* target = nullptr;
  if (resolved_) {
    target = &resolved_->lists[name];
    target->assign(it->second.size(), {});
  }
  for (size_t i = 0; i < it->second.size(); ++i)
    entries.emplace_back(it->second[i], table_ + "." + name, target ? &(*target)[i] : nullptr);
  return entries;
}

void Settings::finish() const {
  const auto is_known = [&](const std::string& name) { return std::ranges::find(known_, name) != known_.end(); };
  const std::string whose = kind().empty() ? "" : fmt::format(" of '{}'", kind());
  for (const auto& [name, setting] : spec_.settings)
    require(is_known(name), name, "is no setting{}{}", whose, spelling_hint(name, known_));
  for (const auto& [name, layers] : spec_.lists)
    require(is_known(name), name, "is no list{}{}", whose, spelling_hint(name, known_));
}

}  // namespace elinvar
