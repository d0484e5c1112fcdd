// Activations by name: each is a layer and a setting of the networks that have one; its parameter is the layer's
// setting.
#include "models/activation.h"

#include <gtest/gtest.h>

#include "models/build.h"
#include "tensor/base/check.h"
#include "tests/support/bits.h"

namespace elinvar {
namespace {

const InputInfo kFeatures{.sample = {6}, .classes = 6};

Tensor features() { return Tensor::from(std::vector<float>{-7, -1, -0.25, 0, 0.5, 8}, {1, 6}); }

Spec one_layer(const std::string& name, std::map<std::string, Setting> settings = {}) {
  return {"layers", {}, {{"layer", {{name, std::move(settings), {}, "m.toml:2"}}}}, "m.toml:1"};
}

Tensor values(const Spec& spec) {
  Context context;
  return build(spec, kFeatures, 1)->forward(features(), context).value();
}

std::string error_of(const Spec& spec) {
  try {
    build(spec, kFeatures, 1);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Activations, AreLayersOfTheirNames) {
  EXPECT_GE(activations().size(), 6u);
  for (const Activation& a : activations()) {
    SCOPED_TRACE(a.name);
    EXPECT_TRUE(test::same_bits(values(one_layer(a.name)), a(Var(features())).value()));
    EXPECT_TRUE(test::same_bits(activation(a.name)(Var(features())).value(), a(Var(features())).value()));
  }
}

TEST(Activations, AreChoicesOfNetworks) {
  for (const std::string& name : activation_names()) {
    Spec resolved;
    (void)build({"mlp", {{"activation", {name}}}, {}, "m.toml:1"}, kFeatures, 1, &resolved);
    EXPECT_EQ(std::get<std::string>(resolved.settings.at("activation").value), name);
  }
  EXPECT_EQ(error_of({"mlp", {{"activation", {std::string("rleu"), "m.toml:3"}}}, {}, "m.toml:1"}),
            "m.toml:3: model.activation does not know 'rleu'; did you mean 'relu'?");
}

TEST(Activations, HaveTheirParametersAsSettings) {
  for (const Activation& a : activations()) {
    if (!a.parameter) continue;
    SCOPED_TRACE(a.name);
    const std::string name = a.parameter->name;
    const Tensor other = values(one_layer(a.name, {{name, {0.375, "m.toml:3"}}}));
    EXPECT_TRUE(test::same_bits(other, a.function(Var(features()), 0.375).value()));
    EXPECT_FALSE(test::same_bits(other, values(one_layer(a.name))));
    EXPECT_NE(error_of(one_layer(a.name, {{name, {1e9, "m.toml:3"}}})), "");
  }
  EXPECT_NE(error_of(one_layer("relu", {{"slope", {0.5, "m.toml:3"}}})).find("slope is no setting of 'relu'"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
