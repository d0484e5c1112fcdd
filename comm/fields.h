#pragma once
// Writes structs as JSON objects and blobs, and reads them back, by the list of their fields (tensor/fields.h):
//
//   struct Progress {
//     PeerId peer = 0;
//     std::optional<int64_t> end = {};
//     ELINVAR_FIELDS(peer, end)
//   };
//
// write_fields(progress, blobs) returns {"peer": 7}; read_fields<Progress>(json, blobs) returns the struct, or throws a
// UsageError that names the field, what was expected and what was found. All fields are required except std::optional
// ones, which are omitted if they have no value. A double is written as its bits, so that it arrives exactly, NaN
// included. Fields of type Blob are appended to the blobs in the order of the fields.
//
// Specialize FieldForm for other types than numbers, strings, containers and structs with a list of fields.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/packet.h"
#include "comm/received_text.h"
#include "tensor/base/check.h"
#include "tensor/base/json_value.h"
#include "tensor/digest.h"
#include "tensor/fields.h"

namespace elinvar {

// Reads one struct and keeps the path of the value that is being read, for messages.
class FieldReader {
 public:
  explicit FieldReader(std::span<const Blob> blobs) : blobs_(blobs) {}

  [[noreturn]] void refuse(const std::string& expected, const nlohmann::json& found) const {
    std::string text = found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    constexpr size_t kMostQuoted = 40;
    if (text.size() > kMostQuoted) text = text.substr(0, kMostQuoted) + "..";
    refuse(fmt::format("expected {}, got {}", expected, text));
  }
  [[noreturn]] void refuse(const std::string& what) const { throw UsageError(fmt::format("{}: {}", path(), what)); }

  Blob take_blob() {
    if (taken_ == blobs_.size()) refuse(fmt::format("blob {} is missing", taken_));
    return blobs_[taken_++];
  }
  size_t untaken_blobs() const { return blobs_.size() - taken_; }

  // Calls `read` for the value under this name.
  template <class Read>
  auto under(std::string_view name, Read&& read) {
    path_.push_back(name);
    auto value = read();
    path_.pop_back();
    return value;
  }

 private:
  std::string path() const { return fmt::format("field '{}'", fmt::join(path_, ".")); }

  std::span<const Blob> blobs_;
  size_t taken_ = 0;
  std::vector<std::string_view> path_;
};

// A struct that lists its fields, or is empty.
template <class T>
concept Fieldwise = HasFields<T> || std::is_empty_v<T>;

template <class T>
struct FieldForm;

template <>
struct FieldForm<bool> {
  static nlohmann::json write(bool value, std::vector<Blob>&) { return value; }
  static bool read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_boolean()) reader.refuse("true or false", json);
    return json.get<bool>();
  }
};

// Signed integers are counts, or -1 for none. The limits are far above any real count and far below overflow, so that
// receivers can add to received numbers.
template <std::integral T>
inline constexpr T kLeastReceived = std::signed_integral<T> ? static_cast<T>(-1) : T{0};
template <std::integral T>
inline constexpr T kMostReceived = std::numeric_limits<T>::max();
template <>
inline constexpr int64_t kMostReceived<int64_t> = int64_t{1} << 50;
template <>
inline constexpr int kMostReceived<int> = 1 << 30;

// Returns null if the value is not an integer within these limits.
template <std::integral T>
std::optional<T> integer_from(const nlohmann::json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  const bool negative = !json.is_number_unsigned() && json.get<int64_t>() < 0;
  const bool within = negative ? std::cmp_greater_equal(json.get<int64_t>(), kLeastReceived<T>)
                               : std::cmp_less_equal(json.get<uint64_t>(), kMostReceived<T>);
  if (within) return json.get<T>();
  return std::nullopt;
}

template <std::integral T>
struct FieldForm<T> {
  static nlohmann::json write(T value, std::vector<Blob>&) { return value; }
  static T read(const nlohmann::json& json, FieldReader& reader) {
    if (const std::optional<T> value = integer_from<T>(json)) return *value;
    reader.refuse(fmt::format("an integer from {} to {}", kLeastReceived<T>, kMostReceived<T>), json);
  }
};

template <>
struct FieldForm<double> {
  static nlohmann::json write(double value, std::vector<Blob>&) { return std::bit_cast<uint64_t>(value); }
  static double read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_number_unsigned()) reader.refuse("the bits of a number", json);
    return std::bit_cast<double>(json.get<uint64_t>());
  }
};

template <>
struct FieldForm<std::string> {
  static nlohmann::json write(const std::string& value, std::vector<Blob>&) { return value; }
  static std::string read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_string()) reader.refuse("a text", json);
    return received_text(json.get<std::string>());
  }
};

// JSON is passed on as it is, except for control characters in it.
template <>
struct FieldForm<JsonValue> {
  static nlohmann::json write(const JsonValue& value, std::vector<Blob>&) { return *value; }
  static JsonValue read(const nlohmann::json& json, FieldReader&) { return received_text(json); }
};

template <>
struct FieldForm<Digest> {
  static nlohmann::json write(const Digest& value, std::vector<Blob>&) { return value.hex(); }
  static Digest read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_string()) reader.refuse("a digest", json);
    return Digest::parse(json.get_ref<const std::string&>());
  }
};

// Blobs are not in the JSON; a list of blobs is written as its length.
template <>
struct FieldForm<std::vector<Blob>> {
  static nlohmann::json write(const std::vector<Blob>& value, std::vector<Blob>& blobs) {
    blobs.insert(blobs.end(), value.begin(), value.end());
    return value.size();
  }
  static std::vector<Blob> read(const nlohmann::json& json, FieldReader& reader) {
    std::vector<Blob> value;
    for (auto count = FieldForm<uint32_t>::read(json, reader); count > 0; --count) value.push_back(reader.take_blob());
    return value;
  }
};
template <>
struct FieldForm<Blob> {
  static nlohmann::json write(const Blob& value, std::vector<Blob>& blobs) {
    blobs.push_back(value);
    return true;
  }
  static Blob read(const nlohmann::json&, FieldReader& reader) { return reader.take_blob(); }
};

template <class T>
struct FieldForm<std::vector<T>> {
  static nlohmann::json write(const std::vector<T>& value, std::vector<Blob>& blobs) {
    nlohmann::json json = nlohmann::json::array();
    for (const T& element : value) json.push_back(FieldForm<T>::write(element, blobs));
    return json;
  }
  static std::vector<T> read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_array()) reader.refuse("a list", json);
    std::vector<T> value;
    value.reserve(json.size());
    for (const nlohmann::json& element : json) value.push_back(FieldForm<T>::read(element, reader));
    return value;
  }
};

// Keys are strings or integers.
template <class Key, class T>
struct FieldForm<std::map<Key, T>> {
  static nlohmann::json write(const std::map<Key, T>& value, std::vector<Blob>& blobs) {
    nlohmann::json json = nlohmann::json::object();
    for (const auto& [key, element] : value) {
      if constexpr (std::integral<Key>) json[std::to_string(key)] = FieldForm<T>::write(element, blobs);
      else json[key] = FieldForm<T>::write(element, blobs);
    }
    return json;
  }
  static std::map<Key, T> read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_object()) reader.refuse("an object", json);
    std::map<Key, T> value;
    for (const auto& [key, element] : json.items())
      value.emplace(key_from(key, reader), FieldForm<T>::read(element, reader));
    return value;
  }

 private:
  static Key key_from(const std::string& text, FieldReader& reader) {
    if constexpr (std::integral<Key>) {
      Key key{};
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), key);
      if (error != std::errc() || end != text.data() + text.size()) reader.refuse("an integer as the key", text);
      return FieldForm<Key>::read(key, reader);
    } else {
      return received_text(text);
    }
  }
};

template <Fieldwise T>
struct FieldForm<T> {
  static nlohmann::json write(const T& value, std::vector<Blob>& blobs) {
    nlohmann::json json = nlohmann::json::object();
    if constexpr (HasFields<T>)
      each_field(value, [&]<class Field>(std::string_view name, const Field& field) {
        if constexpr (requires { field.has_value(); }) {
          if (field) json[std::string(name)] = FieldForm<typename Field::value_type>::write(*field, blobs);
        } else {
          json[std::string(name)] = FieldForm<Field>::write(field, blobs);
        }
      });
    return json;
  }
  static T read(const nlohmann::json& json, FieldReader& reader) {
    if (!json.is_object()) reader.refuse("an object", json);
    T value;
    if constexpr (HasFields<T>)
      each_field(value, [&]<class Field>(std::string_view name, Field& field) {
        field = reader.under(name, [&]() -> Field {
          const auto found = json.find(name);
          if constexpr (requires { field.has_value(); }) {
            if (found == json.end()) return {};
            return FieldForm<typename Field::value_type>::read(*found, reader);
          } else {
            if (found == json.end()) reader.refuse("it is missing");
            return FieldForm<Field>::read(*found, reader);
          }
        });
      });
    return value;
  }
};

template <Fieldwise T>
nlohmann::json write_fields(const T& value, std::vector<Blob>& blobs) {
  return FieldForm<T>::write(value, blobs);
}

// The same for a struct without blobs.
template <Fieldwise T>
nlohmann::json write_fields(const T& value) {
  std::vector<Blob> blobs;
  nlohmann::json json = FieldForm<T>::write(value, blobs);
  invariant(blobs.empty(), "a struct without blobs");
  return json;
}

template <Fieldwise T>
T read_fields(const nlohmann::json& json, std::span<const Blob> blobs = {}) {
  FieldReader reader(blobs);
  T value = FieldForm<T>::read(json, reader);
  check(reader.untaken_blobs() == 0, "{} blobs more than the fields announce", reader.untaken_blobs());
  return value;
}

}  // namespace elinvar
