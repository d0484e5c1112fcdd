#pragma once
// Small networks that have a class in other programs, for tests of their config.json and of their weights. They have a
// namespace of their own, as their names are short.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "models/build.h"
#include "models/published_config.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test::exchange {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct ConfigCase {
  Spec model;
  InputInfo input;
};

using List = std::vector<int64_t>;
using NamedValues = std::map<std::string, Value>;

inline ConfigCase of_text(const std::string& kind, const NamedValues& settings) {
  ConfigCase c{{.kind = kind}, {.sample = {12}, .classes = 40, .dtype = DType::i32}};
  for (const auto& [name, value] : settings) c.model.settings[name] = {value};
  return c;
}
inline ConfigCase of_images(const std::string& kind, const NamedValues& settings) {
  ConfigCase c{{.kind = kind}, {.sample = {64, 64, 3}, .classes = 10}};
  for (const auto& [name, value] : settings) c.model.settings[name] = {value};
  return c;
}

inline ConfigCase gpt(const NamedValues& more = {}) {
  NamedValues settings = {
      {"layers", int64_t{2}}, {"heads", int64_t{2}}, {"channels", int64_t{16}}, {"context", int64_t{20}}};
  for (const auto& [name, value] : more) settings[name] = value;
  return of_text("gpt", settings);
}
inline ConfigCase llama(const NamedValues& more = {}) {
  NamedValues settings = {{"layers", int64_t{2}},    {"heads", int64_t{4}},   {"kv_heads", int64_t{2}},
                          {"channels", int64_t{16}}, {"hidden", int64_t{24}}, {"norm_eps", 1e-6}};
  for (const auto& [name, value] : more) settings[name] = value;
  return of_text("llama", settings);
}
inline ConfigCase llama31() {
  return llama({{"rope_base", 500.0}, {"rope_factor", 8.0}, {"rope_original_context", int64_t{64}}});
}
inline ConfigCase mixtral(const NamedValues& more = {}) {
  NamedValues settings = {{"experts", int64_t{4}}, {"balance_weight", 0.04}};
  for (const auto& [name, value] : more) settings[name] = value;
  return llama(settings);
}
inline ConfigCase resnet(bool bottleneck) {
  return of_images("resnet", {{"blocks", List{1, 2}}, {"widths", List{4, 8}}, {"bottleneck", bottleneck}});
}

inline ConfigCase bert(const std::string& head) {
  ConfigCase c = of_text("bert", {{"layers", int64_t{2}},
                                  {"heads", int64_t{2}},
                                  {"channels", int64_t{16}},
                                  {"hidden", int64_t{24}},
                                  {"head", head}});
  if (head == "pooled")
    c.input = {
        .sample = {12}, .classes = 3, .dtype = DType::i32, .symbols = {40}, .further = {{{1}, DType::i32, {13}}}};
  return c;
}
inline ConfigCase electra(const NamedValues& more = {}) {
  NamedValues settings = {{"layers", int64_t{2}},     {"heads", int64_t{2}},
                          {"channels", int64_t{16}},  {"generator_layers", int64_t{1}},
                          {"embedding", int64_t{12}}, {"generator_channels", int64_t{8}}};
  for (const auto& [name, value] : more) settings[name] = value;
  ConfigCase c = of_text("electra", settings);
  c.input.further = {{{12}, DType::i32, {40}}};
  return c;
}
inline ConfigCase t5(const NamedValues& more = {}) {
  NamedValues settings = {{"layers", int64_t{1}},
                          {"decoder_layers", int64_t{2}},
                          {"heads", int64_t{2}},
                          {"channels", int64_t{16}},
                          {"hidden", int64_t{24}}};
  for (const auto& [name, value] : more) settings[name] = value;
  ConfigCase c = of_text("t5", settings);
  c.input = {.sample = {8},
             .classes = 40,
             .dtype = DType::i32,
             .symbols = {40},
             .further = {{{6}, DType::i32, {40}}, {{1}, DType::i32, {9}}}};
  return c;
}

// The shapes of a network and its description with all defaults.
struct Outline {
  explicit Outline(const ConfigCase& c) {
    const OutlineScope no_values;
    network = build(c.model, c.input, 1, &model);
  }
  Json config(const PublishedFacts& facts = {}) const {
    return Json::parse(published_config(model, network->parameters.state(), facts));
  }
  // Returns the error message, or "" if there is no error.
  std::string complaint(const std::string& json) const {
    const TemporaryFolder folder;
    folder.write("config.json", json);
    for (const fs::path& weights : {fs::path(folder.path()), folder / "model.safetensors"}) {
      try {
        check_published_settings(model, network->parameters.state(), weights);
      } catch (const UsageError& error) {
        return error.what();
      } catch (const Failure& error) {
        return std::string("failure: ") + error.what();
      }
    }
    return "";
  }

  Spec model;
  std::unique_ptr<Network> network;
};

inline void expect_has(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

inline void expect_entries(const Json& config, const Json& entries) {
  for (const auto& [key, value] : entries.items()) EXPECT_EQ(config.value(key, Json("absent")), value) << key;
}

}  // namespace elinvar::test::exchange
