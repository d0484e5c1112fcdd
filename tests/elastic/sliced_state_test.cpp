// Digests of a state that several workers hold in slices.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "comm/packet.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/protocol/message.h"
#include "tests/elastic/sliced_state.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

using test::message_of;
using test::sliced::cut;
using test::sliced::kChunk;
using test::sliced::replicated;
using test::sliced::slice;
using test::sliced::whole;

std::vector<SliceDigests> all_digests(const std::vector<std::vector<StateSlice>>& slices) {
  std::vector<SliceDigests> digests;
  for (const std::vector<StateSlice>& of_part : slices)
    for (SliceDigests& each : slice_digests(of_part)) digests.push_back(std::move(each));
  return digests;
}

TEST(SlicedState, ItsDigestIsThatOfTheWhole) {
  std::mt19937 random(2);
  const StateSum expected = state_sum(digests_of(whole()));
  EXPECT_EQ(expected.digest, digest(whole()));
  for (int workers = 1; workers <= 4; ++workers) {
    std::vector<SliceDigests> slices = all_digests(cut(workers, random));
    std::shuffle(slices.begin(), slices.end(), random);
    const StateSum sum = state_sum(digests_of(replicated()), slices),
                   from_text = state_sum(to_text(digests_of(replicated())), slices);
    EXPECT_EQ(sum.digest, expected.digest);
    EXPECT_EQ(sum.parts, expected.parts);
    EXPECT_EQ(from_text.digest, expected.digest);
    EXPECT_EQ(from_text.parts, expected.parts);
  }
  EXPECT_EQ(state_sum(digests_of(whole()), {}).digest, expected.digest);
}

TEST(SlicedState, ChunksThatAreMissingOrDoubledAreNamed) {
  const SliceDigests a{.tensor = "t", .whole = {3, kChunk}, .begin = 0, .chunks = {{1, 1}}},
      b{.tensor = "t", .whole = {3, kChunk}, .begin = kChunk, .chunks = {{2, 2}, {3, 3}}};
  const auto refusal = [](const std::vector<SliceDigests>& slices, const TensorDigests& of_others = {}) {
    return message_of<Failure>([&] { (void)state_sum(of_others, slices); });
  };
  EXPECT_EQ(refusal({b, a}), "");
  EXPECT_EQ(refusal({a}), "[state] t[262144:786432] is missing");
  EXPECT_EQ(refusal({b}), "[state] t[0:262144] is missing");
  EXPECT_EQ(refusal({a, b, a}), "[state] t[0:262144] is there twice");
  EXPECT_EQ(refusal({a, b}, {{"t", {}}}), "[state] 't' is there whole and in slices");
  const auto spoiled = [&](auto spoil) {
    SliceDigests other = b;
    spoil(other);
    return refusal({a, other});
  };
  EXPECT_NE(spoiled([](SliceDigests& s) { s.chunks.clear(); }).find("is no slice"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.chunks.push_back({}); }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = INT64_MAX; }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = -kChunk; }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = 1; }).find("is no slice"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.whole = {3 * kChunk}; }).find("belongs to"), std::string::npos);
}

TEST(SlicedState, DigestsOfSlicesTravelInMessages) {
  std::mt19937 random(8);
  const messages::Saved sent{.slices = all_digests(cut(1, random))};
  const Packet packet = packet_of({.payload = sent}, 1);
  const Message back = message_of(packet);
  const std::vector<SliceDigests>& slices = back.as<messages::Saved>()->slices;
  EXPECT_EQ(state_sum(digests_of(replicated()), slices).digest, digest(whole()));
  for (const nlohmann::json& odd : {nlohmann::json{-1}, nlohmann::json{INT64_MAX, 2}, nlohmann::json("x"),
                                    nlohmann::json(std::vector<int>(9, 1))}) {
    Packet other = packet;
    other.body["slices"][0]["whole"] = odd;
    EXPECT_NE(message_of<UsageError>([&] { (void)message_of(other); }).find("slices.whole"), std::string::npos) << odd;
  }
}

}  // namespace
}  // namespace elinvar
