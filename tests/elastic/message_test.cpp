// The messages of the protocol: their form in the transport, the checks that refuse them, and the table in PROTOCOL.md.
#include "elastic/protocol/message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/places.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

std::string error_of(const Packet& packet) {
  try {
    (void)message_of(packet);
  } catch (const UsageError& refused) {
    return refused.what();
  }
  return "";
}

std::string text_of(const Blob& blob) { return {reinterpret_cast<const char*>(blob.data), blob.bytes}; }

TEST(Message, ArrivesAsItWasSent) {
  const Message sent{.sender = 7,
                     .generation = 3,
                     .step = 9,
                     .payload = messages::SendState{
                         .peer = 1, .endpoint = "e", .part = 2, .parts = 5, .attempt = 1LL << 40, .copies = true}};
  const Packet packet = packet_of(sent, /*run=*/11);
  EXPECT_EQ(packet.kind, "send_state");
  EXPECT_EQ(packet.run, 11u);
  const Message back = message_of(packet);
  EXPECT_EQ(back.sender, 7u);
  EXPECT_EQ(back.generation, 3);
  EXPECT_EQ(back.step, 9);
  const auto* request = back.as<messages::SendState>();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->peer, 1u);
  EXPECT_EQ(request->endpoint, "e");
  EXPECT_EQ(request->part, 2);
  EXPECT_EQ(request->parts, 5);
  EXPECT_EQ(request->attempt, 1LL << 40);
  EXPECT_TRUE(request->copies);
}

TEST(Message, NumbersArriveBitForBit) {
  messages::TrailerPart part{.member = 2, .seconds = std::numeric_limits<double>::quiet_NaN()};
  part.facts[3] = {.loss_sum = 0.1, .count = 5, .batch = {1, 2}};
  part.scaling_state = ScalingState{.samples = 1, .batch = 2, .since = 3, .from = 1.0 / 3};
  const Message back = message_of(packet_of({.payload = part}, 1));
  const auto* read = back.as<messages::TrailerPart>();
  ASSERT_TRUE(read);
  EXPECT_TRUE(std::isnan(read->seconds));
  EXPECT_EQ(read->facts.at(3).loss_sum, 0.1);
  EXPECT_FALSE(read->facts.at(3).gradient);
  EXPECT_EQ(read->scaling_state, part.scaling_state);
  EXPECT_FALSE(read->state);
}

TEST(Message, BlobsGoBesideTheFieldsInTheirOrder) {
  messages::StatePieces sent{.part = 0, .parts = 1, .last = true, .pieces = {{"a", 0}, {"b", 4}}};
  sent.bytes = {blob_of(std::string("first")), blob_of(std::string("second"))};
  sent.facts = {{4, blob_of(std::string("{}"))}};
  const Packet packet = packet_of({.payload = sent}, 1);
  EXPECT_EQ(packet.blobs.size(), 3u);
  const Message back = message_of(packet);
  const auto* read = back.as<messages::StatePieces>();
  ASSERT_TRUE(read);
  ASSERT_EQ(read->bytes.size(), 2u);
  EXPECT_EQ(text_of(read->bytes[1]), "second");
  ASSERT_EQ(read->facts.size(), 1u);
  EXPECT_EQ(text_of(read->facts[0].text), "{}");

  Packet fewer = packet;
  fewer.blobs.pop_back();
  EXPECT_EQ(error_of(fewer), "field 'facts.text': blob 2 is missing");
  Packet more = packet;
  more.blobs.push_back(blob_of(std::string("x")));
  EXPECT_EQ(error_of(more), "1 blobs more than the fields announce");
}

TEST(Message, WhatIsWrongIsNamedWithItsField) {
  const Packet request = packet_of({.payload = messages::SendState{.peer = 1, .endpoint = "e"}}, 1);
  const auto spoiled = [&](const std::function<void(Json&)>& spoil) {
    Packet packet = request;
    spoil(packet.body);
    return error_of(packet);
  };
  EXPECT_EQ(spoiled([](Json&) {}), "");
  EXPECT_EQ(spoiled([](Json& body) { body.erase("attempt"); }), "field 'attempt': it is missing");
  EXPECT_EQ(spoiled([](Json& body) { body["copies"] = 1; }), "field 'copies': expected true or false, got 1");
  EXPECT_EQ(spoiled([](Json& body) { body["part"] = "x"; }),
            "field 'part': expected an integer from -1 to 1073741824, got \"x\"");
  EXPECT_EQ(spoiled([](Json& body) { body["part"] = 1LL << 40; }),
            "field 'part': expected an integer from -1 to 1073741824, got 1099511627776");
  EXPECT_EQ(spoiled([](Json& body) { body["peer"] = -1; }),
            "field 'peer': expected an integer from 0 to 18446744073709551615, got -1");
  EXPECT_EQ(spoiled([](Json& body) { body["endpoint"] = {1, 2}; }), "field 'endpoint': expected a text, got [1,2]");
  Packet unknown = request;
  unknown.kind = "fee";
  EXPECT_EQ(error_of(unknown), "an unknown kind of message");

  Packet start = packet_of({.payload = messages::Start{.record = {.number = 1}}}, 1);
  start.body["record"].erase("members");
  EXPECT_NE(error_of(start).find("field 'record': "), std::string::npos) << error_of(start);
  Packet name = packet_of({.payload = messages::GroupName{}}, 1);
  name.body["id"] = "no id";
  EXPECT_NE(error_of(name).find("field 'id': "), std::string::npos) << error_of(name);
  Packet audit = packet_of({.payload = messages::Audit{}}, 1);
  audit.body["evidence"]["stage"] = 7;
  EXPECT_EQ(error_of(audit), "field 'evidence.stage': expected the stage of an audit, got 7");
}

// Receivers add to numbers and compare them; none of them may overflow.
TEST(Message, NumbersNearOverflowAreRefused) {
  Packet hello = packet_of({.payload = messages::Hello{}}, 1);
  hello.body["promised"] = INT64_MAX;
  EXPECT_EQ(error_of(hello),
            "field 'promised': expected an integer from -1 to 1125899906842624, got 9223372036854775807");
  hello.body["promised"] = -2;
  EXPECT_EQ(error_of(hello), "field 'promised': expected an integer from -1 to 1125899906842624, got -2");

  Packet part = packet_of({.payload = messages::TrailerPart{.facts = {{3, {}}}}}, 1);
  part.body["facts"]["2147483647"] = part.body["facts"]["3"];
  EXPECT_NE(error_of(part).find("expected an integer from -1 to 1073741824, got 2147483647"), std::string::npos)
      << error_of(part);
  Packet state = packet_of({.payload = messages::Fenced{.scaling_state = ScalingState{}}}, 1);
  state.body["scaling_state"][2] = INT64_MIN;
  EXPECT_NE(error_of(state).find("field 'scaling_state': expected an integer"), std::string::npos) << error_of(state);

  Generation record{.number = 1};
  record.members.push_back({.id = 1, .peer = 2, .endpoint = "e", .share = {{0, 8}}, .first_share = {{0, 8}}});
  const Packet propose = packet_of({.payload = messages::Propose{record}}, 1);
  EXPECT_EQ(error_of(propose), "");
  for (const Json& wrong : {Json((1LL << 32) + 8), Json(8.5), Json(true)}) {
    Packet spoiled = propose;
    spoiled.body["record"]["members"][0]["share"][0][1] = wrong;
    EXPECT_NE(error_of(spoiled).find("expected an integer from -1 to 1073741824, got"), std::string::npos)
        << error_of(spoiled);
  }

  Packet header = packet_of({.payload = messages::Warm{}}, 1);
  header.generation = INT64_MAX;
  EXPECT_EQ(error_of(header), "expected a generation and a step from 0 to 1125899906842624, got 9223372036854775807");
  header.generation = 0;
  header.step = -1;
  EXPECT_EQ(error_of(header), "expected a generation and a step from 0 to 1125899906842624, got -1");
}

// They end in terminals and logs.
TEST(Message, ControlCharactersInTextsArriveAsTheirCodes) {
  messages::Hello sent;
  sent.about.name = "a\x1b[31mb\x7f\xc2\x9b\r";
  sent.about.config = "[run]\r\n\tsteps = 1\n";
  sent.about.environment = Json{{"host\x07", {"\x1b]0;title", "größe"}}};
  const Message back = message_of(packet_of({.payload = sent}, 1));
  const WorkerInfo& about = back.as<messages::Hello>()->about;
  EXPECT_EQ(about.name, "a\\u001b[31mb\\u007f\\u009b\\u000d");
  EXPECT_EQ(about.config, sent.about.config);
  EXPECT_EQ(*about.environment, (Json{{"host\\u0007", {"\\u001b]0;title", "größe"}}}));

  Generation record{.number = 1, .reason = "\x1b"};
  const Message propose = message_of(packet_of({.payload = messages::Propose{record}}, 1));
  EXPECT_EQ(propose.as<messages::Propose>()->record.reason, "\\u001b");
}

// PROTOCOL.md thus describes every message and each of its fields.
TEST(Message, TheTableInTheProtocolIsThatOfTheCode) {
  const std::string document = read_file(std::string(ELINVAR_SOURCE_DIR) + "/elastic/PROTOCOL.md");
  EXPECT_NE(document.find("\n\n" + message_table()), std::string::npos)
      << "PROTOCOL.md, \"Messages\", should have this table:\n"
      << message_table();
}

}  // namespace
}  // namespace elinvar
