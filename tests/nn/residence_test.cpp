// Which parameters a Residence asks for and when, and what it leaves behind after errors.
#include "nn/residence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "nn/initializers.h"
#include "nn/linear.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Three segments and a head, one parameter each; the head reads that of the first segment, too: a, b, c, a d.
class Chain : public SegmentedNetwork {
 public:
  Chain() {
    const Scope scope(parameters, 1);
    for (const char* name : {"a", "b", "c"}) {
      (scope / name).parameter("w", {4}, init::constant(1));
      add_segment(name, [](const Residual& x, Context&) { return x; });
    }
    (scope / "d").parameter("w", {4}, init::constant(1));
    add_head({"a"});
  }
  ShardedLogits head(Residual x, Context&) const override { return {.parts = {Var(x)}}; }
};

// Writes down its calls: "?ab" for a request, "!ab" for a wait, "xab" for a cancellation.
class Calls : public ParameterSource {
 public:
  void request(std::span<const size_t> parameters) override {
    if (fails == '?') throw Failure("no request");
    add('?', parameters);
  }
  void wait(std::span<const size_t> parameters) override {
    if (fails == '!') throw Failure("no answer");
    add('!', parameters);
  }
  void cancel(std::span<const size_t> parameters) override { add('x', parameters); }
  std::string take() { return std::exchange(calls_, {}); }

  char fails = ' ';

 private:
  void add(char kind, std::span<const size_t> parameters) {
    if (!calls_.empty()) calls_ += ' ';
    calls_ += kind;
    for (const size_t p : parameters) calls_ += static_cast<char>('a' + p);
  }
  std::string calls_;
};

class ResidenceCalls : public testing::Test {
 protected:
  std::string resident() const {
    std::string names;
    for (const Parameter& p : network_.parameters.list)
      if (p.var.value().resident()) names += p.name[0];
    return names;
  }
  Chain network_;
  Calls calls_;
  Residence residence_{network_, calls_};
};

TEST_F(ResidenceCalls, TheNextSegmentIsRequestedAhead) {
  EXPECT_EQ(resident(), "");
  residence_.enter(0, 1);
  EXPECT_EQ(calls_.take(), "?a !a ?b");
  EXPECT_EQ(resident(), "ab");
  residence_.leave(0);
  EXPECT_EQ(resident(), "b");
  residence_.enter(1, 2);
  EXPECT_EQ(calls_.take(), "!b ?c");
  residence_.leave(1);
  residence_.enter(2, 3);
  EXPECT_EQ(calls_.take(), "!c ?ad");
  residence_.leave(2);
  residence_.enter(3, 3);
  EXPECT_EQ(calls_.take(), "!ad");
  residence_.leave(3);
  EXPECT_EQ(resident(), "ad") << "it is the next one, too";
  residence_.enter(3, 2);
  EXPECT_EQ(calls_.take(), "?c");
  residence_.leave(3);
  residence_.enter(2, std::nullopt);
  residence_.leave(2);
  EXPECT_EQ(calls_.take(), "!c");
  EXPECT_EQ(resident(), "");
}

TEST_F(ResidenceCalls, ASharedParameterStaysWhileEitherSegmentNeedsIt) {
  residence_.enter(0, 3);
  EXPECT_EQ(calls_.take(), "?a !a ?d");
  residence_.leave(0);
  EXPECT_EQ(resident(), "ad");
  residence_.enter(3, 0);
  EXPECT_EQ(calls_.take(), "!d");
  residence_.leave(3);
  EXPECT_EQ(resident(), "a");
}

TEST_F(ResidenceCalls, AnotherSegmentThanTheNextOneMayCome) {
  residence_.enter(0, 1);
  residence_.leave(0);
  calls_.take();
  residence_.enter(2, std::nullopt);
  EXPECT_EQ(calls_.take(), "xb ?c !c");
  EXPECT_EQ(resident(), "c");
  residence_.leave(2);
}

TEST_F(ResidenceCalls, AfterErrorsNothingIsHeld) {
  calls_.fails = '?';
  EXPECT_THROW(residence_.enter(0, 1), Failure);
  EXPECT_EQ(resident(), "");
  calls_.fails = '!';
  EXPECT_THROW(residence_.enter(0, 1), Failure);
  EXPECT_EQ(calls_.take(), "?a xa");
  EXPECT_EQ(resident(), "");
  calls_.fails = ' ';
  residence_.enter(0, std::nullopt);
  EXPECT_EQ(calls_.take(), "?a !a");
  calls_.fails = '?';
  EXPECT_THROW(residence_.enter(1, 2), Failure);
  EXPECT_EQ(resident(), "a");
  residence_.leave(0);
  calls_.fails = ' ';
  residence_.enter(0, 1);
  residence_.leave(0);
  EXPECT_EQ(calls_.take(), "?a !a ?b");
}

TEST(WholeResidence, HasAllParametersUntilItEnds) {
  Chain network;
  Calls calls;
  const auto resident = [&] {
    return std::ranges::count_if(network.parameters.list, [](const Parameter& p) { return p.var.value().resident(); });
  };
  for (Parameter& p : network.parameters.list) p.var.mutable_value().release();
  {
    const WholeResidence whole(network, calls);
    EXPECT_EQ(calls.take(), "?abcd !abcd");
    EXPECT_EQ(resident(), 4);
  }
  EXPECT_EQ(resident(), 0);
  for (const auto& [fails, left] : {std::pair{'?', ""}, {'!', "?abcd xabcd"}}) {
    calls.fails = fails;
    EXPECT_THROW(WholeResidence(network, calls), Failure);
    EXPECT_EQ(calls.take(), left);
    EXPECT_EQ(resident(), 0);
  }
}

TEST(ResidenceOrder, WhatIsRequestedIsCancelledAtTheEnd) {
  const Chain network;
  Calls calls;
  {
    Residence residence(network, calls);
    const SegmentInUse in_use(&residence, 0, 1);
  }
  EXPECT_EQ(calls.take(), "?a !a ?b xb");
  for (const Parameter& p : network.parameters.list) EXPECT_FALSE(p.var.value().resident());
}

TEST(ResidenceOrder, TrainingNeedsPassesThatAreCut) {
  const Chain network;
  Calls calls;
  Residence residence(network, calls);
  Context context{.training = true, .residence = &residence};
  EXPECT_THROW(network.forward(Tensor::zeros({4}), context), UsageError);
}

}  // namespace
}  // namespace elinvar
