// Messages as frames: they are read as written, and nothing that a stranger could send does harm.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "comm/packet.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;

Blob blob(std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  return {owner, reinterpret_cast<const std::byte*>(owner->data()), owner->size()};
}

std::string text(const Blob& of) { return {reinterpret_cast<const char*>(of.data), of.bytes}; }

Packet sample() {
  Packet message{.kind = "leaf", .run = 0xfedcba9876543210, .sender = 7, .generation = -1, .step = int64_t{1} << 40};
  message.body = {{"vrank", 3}, {"names", {"a", "b"}}, {"scale", 0.1}, {"text", "ünïcode \" \\ ["}};
  message.blobs = {blob("first"), blob(""), blob(std::string(100000, 'x'))};
  return message;
}

std::string error_of(std::vector<Blob> frames, const PacketLimits& limits = {}) {
  const Decoded decoded = decode(std::move(frames), limits);
  EXPECT_EQ(decoded.packet.has_value(), decoded.error.empty());
  return decoded.error;
}

// Frames of the sample with one of them changed.
std::vector<Blob> changed(size_t frame, const std::function<void(std::string&)>& change) {
  std::vector<Blob> frames = encode(sample());
  std::string bytes = text(frames[frame]);
  change(bytes);
  frames[frame] = blob(std::move(bytes));
  return frames;
}

std::vector<Blob> with_body(std::string body) {
  return changed(1, [&](std::string& bytes) { bytes = std::move(body); });
}

TEST(Packet, IsReadAsItWasWritten) {
  const Packet sent = sample();
  const Decoded decoded = decode(encode(sent));
  ASSERT_TRUE(decoded.packet) << decoded.error;
  const Packet& got = *decoded.packet;
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.run, sent.run);
  EXPECT_EQ(got.sender, sent.sender);
  EXPECT_EQ(got.generation, sent.generation);
  EXPECT_EQ(got.step, sent.step);
  EXPECT_EQ(got.body, sent.body);
  ASSERT_EQ(got.blobs.size(), sent.blobs.size());
  for (size_t i = 0; i < got.blobs.size(); ++i) {
    EXPECT_EQ(got.blobs[i].data, sent.blobs[i].data) << "blobs are shared, not copied";
    EXPECT_EQ(text(got.blobs[i]), text(sent.blobs[i]));
  }
}

TEST(Packet, HeaderLiesAsDocumented) {
  const std::string header = text(encode(sample())[0]);
  const unsigned char expected[44] = {'E',  'L',  'N',  'V',  1,    0,    0,    0,                  // version
                                      0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,               // run
                                      7,    0,    0,    0,    0,    0,    0,    0,                  // sender
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,               // generation
                                      0,    0,    0,    0,    0,    1,    0,    0,    3, 0, 0, 0};  // step, blobs
  ASSERT_EQ(header.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(header.data(), expected, sizeof expected), 0);
}

TEST(Packet, WhatNobodyWouldTakeIsNotSent) {
  const auto refused = [](const std::function<void(Packet&)>& change, const PacketLimits& limits = {}) {
    Packet message = sample();
    change(message);
    return message_of<UsageError>([&] { encode(message, limits); });
  };
  EXPECT_NE(refused([](Packet& m) { m.kind = ""; }), "");
  EXPECT_NE(refused([](Packet& m) { m.kind = std::string(65, 'k'); }), "");
  EXPECT_NE(refused([](Packet& m) { m.kind = "le\x1b[Aaf"; }), "") << "it is quoted in errors";
  EXPECT_NE(refused([](Packet& m) { m.body = {1, 2}; }), "");
  EXPECT_NE(refused([](Packet& m) { m.body["kind"] = "other"; }), "");
  EXPECT_NE(refused([](Packet& m) { m.body["text"] = std::string(1 << 20, 'x'); }), "");
  EXPECT_NE(refused([](Packet& m) {
              nlohmann::json deep = 1;
              for (int i = 0; i < 40; ++i) deep = nlohmann::json::array({deep});
              m.body["deep"] = deep;
            }),
            "");
  EXPECT_NE(refused([](Packet&) {}, {.blobs = 2}), "");
  EXPECT_NE(refused([](Packet&) {}, {.blob_bytes = 99999}), "");
  EXPECT_EQ(refused([](Packet&) {}, {.blobs = 3, .blob_bytes = 100000}), "");
}

// As the name of a file may have it, which is quoted in a reason.
TEST(Packet, WhatIsNoUtf8IsReplaced) {
  Packet message = sample();
  message.body["reason"] = "a\xFFz";
  const Decoded decoded = decode(encode(message));
  ASSERT_TRUE(decoded.packet) << decoded.error;
  EXPECT_EQ(decoded.packet->body.at("reason"), "a\xEF\xBF\xBDz");
}

TEST(Packet, DamagedFramesAreRefusedWithTheReason) {
  EXPECT_EQ(error_of({}), "0 frames, at least 2 expected");
  EXPECT_EQ(error_of({Blob{}, Blob{}}), "not a message of this protocol");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h[0] = 'X'; })), "not a message of this protocol");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h[4] = 2; })), "version 2, 1 expected");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h.resize(6); })), "a header of 6 bytes, 44 expected");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h.resize(43); })), "a header of 43 bytes, 44 expected");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h += '\0'; })), "a header of 45 bytes, 44 expected");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h[40] = 4; })), "3 blobs, 4 expected from the header");
  EXPECT_EQ(error_of(changed(0, [](std::string& h) { h[43] = '\xff'; })), "4278190083 blobs, at most 4096 expected");
  EXPECT_EQ(error_of(encode(sample()), {.blob_bytes = 99999}), "blob 2 has 100000 bytes, at most 99999 expected");
  EXPECT_EQ(error_of(with_body("")), "a body that is not JSON");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"leaf\"")), "a body that is not JSON");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"\xff\"}")), "a body that is not JSON");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"a\",\"x\":1e999}")), "a body that is not JSON");
  EXPECT_EQ(error_of(with_body("[\"kind\"]")), "a body that is array, not an object");
  EXPECT_EQ(error_of(with_body("{}")), "a body without a kind");
  EXPECT_EQ(error_of(with_body("{\"kind\":3}")), "a body without a kind");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"\"}")), "a kind of 0 bytes, 1 to 64 expected");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"" + std::string(65, 'k') + "\"}")), "a kind of 65 bytes, 1 to 64 expected");
  EXPECT_EQ(error_of(with_body(std::string((1 << 20) + 1, ' '))), "a body of 1048577 bytes, at most 1048576 expected");
  EXPECT_EQ(error_of(with_body(std::string(1 << 20, '['))), "a body nested deeper than 32 levels");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"a\",\"b\":" + std::string(31, '[') + std::string(31, ']') + "}")), "");
  EXPECT_EQ(error_of(with_body("{\"kind\":\"a\",\"b\":" + std::string(32, '[') + std::string(32, ']') + "}")),
            "a body nested deeper than 32 levels");
  EXPECT_EQ(
      error_of(with_body("{\"kind\":\"a\",\"b\":\"" + std::string(99, '[') + "\\\"" + std::string(99, '{') + "\"}")),
      "")
      << "brackets within strings do not nest";
}

// Random bytes, and real messages with random damage: decode() always answers, and what it accepts can be sent again.
TEST(Packet, NoiseIsAnswered) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::string fragments[] = {"{", "}", "[",     "]", "\"",   "\\",   "kind",
                                   ":", ",", "1e308", "-", "null", "\xc3", "\\ud800"};
  int taken = 0, turned_away = 0;
  for (int round = 0; round < 30000; ++round) {
    std::vector<Blob> frames = encode(sample());
    frames.back() = blob("small");
    if (round % 10 == 0) frames.resize(below(5));
    for (size_t changes = below(4); changes > 0 && !frames.empty(); --changes) {
      Blob& frame = frames[below(std::min<size_t>(frames.size(), 2))];
      std::string bytes = text(frame);
      switch (below(5)) {
        case 0:
          bytes.resize(below(bytes.size() + 1));
          break;
        case 1:
          if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<char>(below(256));
          break;
        case 2:
          if (!bytes.empty()) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
          break;
        case 3:
          bytes.insert(below(bytes.size() + 1), fragments[below(std::size(fragments))]);
          break;
        default:
          bytes.assign(below(200), '\0');
          for (char& c : bytes) c = static_cast<char>(below(256));
      }
      frame = blob(std::move(bytes));
    }
    const Decoded decoded = decode(std::move(frames));
    ASSERT_EQ(decoded.packet.has_value(), decoded.error.empty());
    if (!decoded.packet) {
      ++turned_away;
      continue;
    }
    ++taken;
    const Decoded again = decode(encode(*decoded.packet));
    ASSERT_TRUE(again.packet) << again.error;
    ASSERT_EQ(again.packet->body, decoded.packet->body);
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(turned_away, 1000);
}

}  // namespace
}  // namespace elinvar
