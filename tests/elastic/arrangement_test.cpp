#include "elastic/step/arrangement.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

struct ReadArrangement {
  Arrangement arrangement;
  int dp = 0;
};

ReadArrangement read(std::string_view text) {
  ReadArrangement read;
  read.dp = read_arrangement(text, read.arrangement);
  return read;
}

std::string fault_of(std::string_view text) {
  try {
    read(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Arrangement, IsReadFromEntriesInAnyOrder) {
  EXPECT_EQ(read("").arrangement, Arrangement{});
  EXPECT_EQ(read("").dp, 0) << "not named";
  EXPECT_EQ(read("zero=2").arrangement, (Arrangement{.zero = 2}));
  EXPECT_EQ(read("tp=3,zero=1").arrangement, (Arrangement{.zero = 1, .tp = 3}));
  EXPECT_EQ(read("zero=1,dp=4,tp=3").arrangement, (Arrangement{.zero = 1, .tp = 3}));
  EXPECT_EQ(read("zero=1,dp=4,tp=3").dp, 4);
  EXPECT_EQ(read("tp=2,tp=1").arrangement.tp, 1) << "the last one counts";
  Arrangement given{.zero = 1, .copies = 3, .tp = 4};
  read_arrangement("tp=2", given);
  EXPECT_EQ(given, (Arrangement{.zero = 1, .copies = 3, .tp = 2})) << "the rest stays";
}

TEST(Arrangement, WhatIsWrongIsNamed) {
  for (const char* wrong : {"zero=4", "zero=-1", "zero=1x", "zero=", "zero", "zero=99999999999"})
    EXPECT_EQ(fault_of(wrong), std::string("[arrangement] expected zero=0 to zero=3, got '") + wrong + "'");
  for (const char* wrong : {"tp=0", "tp=1025", "tp= 2"})
    EXPECT_EQ(fault_of(wrong), std::string("[arrangement] expected tp=1 to tp=1024, got '") + wrong + "'");
  EXPECT_EQ(fault_of("tp=2,dp=0"), "[arrangement] expected dp=1 to dp=1024, got 'dp=0'");
  for (const char* wrong : {"ep=2", "Tp=2", " tp=2", "=2", "2"})
    EXPECT_EQ(fault_of(wrong),
              std::string("[arrangement] expected dp=N, tp=N, pp=N, zero=N or copies=N, got '") + wrong + "'");
  EXPECT_EQ(fault_of("dp=64,tp=32"), "[arrangement] at most 1024 workers expected, but dp=64,tp=32,pp=1 has 2048");
  EXPECT_EQ(fault_of("dp=1024,tp=1024,zero=1"),
            "[arrangement] at most 1024 workers expected, but dp=1024,tp=1024,pp=1 has 1048576");
  EXPECT_EQ(fault_of("tp=2,"), "[arrangement] expected dp=N, tp=N, pp=N, zero=N or copies=N, got ''");
}

TEST(Arrangement, IsTextOfWhatDiffersFromDataParallelism) {
  EXPECT_EQ(to_string(Arrangement{}), "zero=0");
  EXPECT_EQ(to_string(Arrangement{.copies = 1, .tp = 2}), "tp=2");
  EXPECT_EQ(to_string(Arrangement{.zero = 1, .copies = 1, .tp = 2, .pp = 3}), "tp=2,pp=3,zero=1,copies=1");
  for (const Arrangement& each : {Arrangement{.zero = 3, .copies = 1, .pp = 2}, {.zero = 0, .copies = 2, .tp = 3}})
    EXPECT_EQ(read(to_string(each)).arrangement, each);
}

}  // namespace
}  // namespace elinvar
