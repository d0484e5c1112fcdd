// Visits the fields of a struct in order, with their names.
#include "tensor/fields.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace elinvar {
namespace {

struct Point {
  int64_t x = 0, y = 0;
  double weight = 1;
  ELINVAR_FIELDS(x, y, weight)
};
struct Single {
  int only = 3;
  ELINVAR_FIELDS(only)
};

template <class T>
std::string text_of(const T& s) {
  std::string text;
  each_field(s, [&](std::string_view name, const auto& field) {
    text += std::string(name) + " = " + std::to_string(static_cast<int>(field)) + "; ";
  });
  return text;
}

TEST(Fields, AreVisitedInOrderWithTheirNames) {
  EXPECT_EQ(text_of(Point{.x = 5, .y = -2, .weight = 4}), "x = 5; y = -2; weight = 4; ");
  EXPECT_EQ(text_of(Single{}), "only = 3; ");
}

TEST(Fields, AreChangedInPlace) {
  Point p{.x = 1, .y = 2, .weight = 3};
  each_field(p, [](std::string_view name, auto& field) { field *= name == "y" ? 10 : 1; });
  EXPECT_EQ(text_of(p), "x = 1; y = 20; weight = 3; ");
}

TEST(Fields, AreKnownOfStructsThatListThem) {
  EXPECT_TRUE(HasFields<Point>);
  EXPECT_FALSE(HasFields<std::string>);
}

}  // namespace
}  // namespace elinvar
