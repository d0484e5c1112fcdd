#include "comm/endpoint.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;

TEST(Endpoint, IsParsed) {
  for (const char* text :
       {"tcp://127.0.0.1:80", "tcp://[::1]:0", "tcp://host.example:65535", "ipc:///a:b", "inproc://x"})
    EXPECT_EQ(to_string(parse_endpoint(text)), text);
  for (const char* text : {"", "tcp", "tcp://", "tcp://:80", "tcp://host", "tcp://host:", "tcp://host:65536",
                           "tcp://h:-1", "tcp://h:8x", "tcp://::1:80", "udp://h:1", "ipc://", "://x"})
    EXPECT_NE(message_of<UsageError>([&] { parse_endpoint(text); }), "") << text;
  const auto leaves = [](const char* text) { return leaves_host(parse_endpoint(text)); };
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://127.8.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "ipc://x"})
    EXPECT_FALSE(leaves(text)) << text;
  for (const char* text : {"tcp://10.0.0.1:1", "tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://127.example:1",
                           "tcp://eth0:1", "tcp://lo:1"})
    EXPECT_TRUE(leaves(text)) << text;
  EXPECT_TRUE(is_wildcard(parse_endpoint("tcp://*:1")));
  EXPECT_FALSE(is_wildcard(parse_endpoint("tcp://10.0.0.1:1")));
}

TEST(Endpoint, NamesAreResolved) {
  for (const char* text : {"tcp://127.0.0.1:80", "tcp://[::1]:80", "tcp://*:80", "ipc://name"}) {
    EXPECT_FALSE(has_name(parse_endpoint(text))) << text;
    EXPECT_EQ(to_string(resolved(parse_endpoint(text))), text);
  }
  const Endpoint local = resolved(parse_endpoint("tcp://localhost:80"));
  EXPECT_TRUE(to_string(local) == "tcp://127.0.0.1:80" || to_string(local) == "tcp://[::1]:80") << to_string(local);
  EXPECT_NE(message_of<Failure>([] { resolved(parse_endpoint("tcp://no.such.host.invalid:9")); }), "");
}

TEST(Endpoint, AnAddressTowardsAPeerIsOneToListenOn) {
  EXPECT_EQ(address_towards(parse_endpoint("tcp://127.0.0.1:9")), "127.0.0.1");
  EXPECT_EQ(address_towards(parse_endpoint("tcp://localhost:9")).find_first_not_of("0123456789.:[]"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { address_towards(parse_endpoint("ipc://x")); }), "");
  EXPECT_NE(message_of<Failure>([] { address_towards(parse_endpoint("tcp://no.such.host.invalid:9")); }), "");
}

}  // namespace
}  // namespace elinvar
