#include "tensor/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace elinvar {
namespace {

void expect_words(const Random4& got, std::array<uint32_t, 4> expected) {
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], expected[i]) << "word " << i;
}

// The known answers for philox4x32-10 that Random123 publishes: zeros, ones, and digits of pi.
TEST(Philox, KnownAnswers) {
  expect_words(philox(0, 0, 0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, UniformIsInTheHalfOpenInterval) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_EQ(uniform01(0xff), 0.0f);  // the low byte is not used
  EXPECT_EQ(uniform01(0x80000000u), 0.5f);
  EXPECT_EQ(uniform01(~0u), 1.0f - 0x1p-24f);
}

TEST(Philox, RngTellsPlacesInARunApart) {
  std::set<uint32_t> seen;
  for (uint64_t seed : {1, 2})
    for (uint32_t step : {0, 1})
      for (uint32_t vrank : {0, 1})
        for (uint32_t op : {0, 1})
          for (uint32_t block : {0, 1}) seen.insert(Rng{seed, step, vrank, op}.block(block).v[0]);
  EXPECT_EQ(seen.size(), 32u);
  Rng rng{7, 3, 1};
  const Rng first = rng.next(), second = rng.next();
  EXPECT_EQ(first.op, 0u);
  EXPECT_EQ(second.op, 1u);
  EXPECT_EQ(second.step, 3u);
}

// Keys decide initial values, so they must never change.
TEST(Philox, KeysOfNamesAreFnv1a) {
  EXPECT_EQ(key_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(key_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(key_of("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace elinvar
