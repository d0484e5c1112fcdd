#include "tensor/isa.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

TEST(Isa, ScalarIsAlwaysThereAndTheBestOneIsChosen) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::scalar);
  EXPECT_EQ(current_isa(), isas.back());
  EXPECT_EQ(parse_isa("auto"), isas.back());
}

TEST(Isa, CapsAndStillKnowsTheOthers) {
  for (Isa isa : available_isas()) {
    set_isa(isa);
    EXPECT_EQ(current_isa(), isa);
    EXPECT_EQ(parse_isa(name_of(isa)), isa);
  }
  set_isa(Isa::scalar);
  const std::vector<Isa> isas = available_isas();
  set_isa(isas.back());
  EXPECT_EQ(isas, available_isas());
}

TEST(Isa, AnUnknownNameIsAUsageError) {
  try {
    parse_isa("mmx");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("--isa mmx"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("scalar"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace elinvar
