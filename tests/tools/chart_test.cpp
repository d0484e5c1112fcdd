// Charts as text, and `train plot`.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/jobs/train_process.h"
#include "tools/train/chart.h"

namespace elinvar::test {
namespace {

constexpr ChartStyle kAscii{.columns = 27, .rows = 4, .ascii = true};

TEST(Chart, IsDrawnWithLettersWhereThereIsOnlyAscii) {
  EXPECT_EQ(chart("loss", {{"run", {{1, 3}, {2, 2}, {3, 1}, {4, 0}}}}, kAscii),
            "loss\n"
            " 3 +****\n"
            "   |    ********\n"
            "   |            *******\n"
            " 0 +                   *****\n"
            "   +------------------------\n"
            "    1          2           4\n");
}

TEST(Chart, AndWithBrailleElsewhere) {
  const std::string drawn = chart("loss", {{"run", {{0, 0}, {46, 4}}}}, {.columns = 30, .rows = 3});
  EXPECT_NE(drawn.find("┤"), std::string::npos);
  EXPECT_NE(drawn.find("└──"), std::string::npos);
  size_t cells = 0;
  for (size_t at = 0; (at = drawn.find("\xE2\xA0", at)) != std::string::npos; ++at) ++cells;
  for (size_t at = 0; (at = drawn.find("\xE2\xA1", at)) != std::string::npos; ++at) ++cells;
  for (size_t at = 0; (at = drawn.find("\xE2\xA2", at)) != std::string::npos; ++at) ++cells;
  for (size_t at = 0; (at = drawn.find("\xE2\xA3", at)) != std::string::npos; ++at) ++cells;
  EXPECT_GE(cells, 25u);
  EXPECT_EQ(drawn.find("\033"), std::string::npos);
}

TEST(Chart, TellsLinesApartByLettersOrColours) {
  const std::vector<ChartLine> lines = {{"one", {{0, 0}, {9, 0}}}, {"two", {{0, 1}, {9, 1}}}};
  const std::string letters = chart("x", lines, {.columns = 30, .rows = 4});
  EXPECT_NE(letters.find("  a one\n  b two\n"), std::string::npos) << letters;
  EXPECT_NE(letters.find("bbbbbbbb"), std::string::npos);
  EXPECT_LT(letters.find("bbbbbbbb"), letters.find("aaaaaaaa"));
  const std::string colours = chart("x", lines, {.columns = 30, .rows = 4, .colours = true});
  EXPECT_NE(colours.find("\033[36m"), std::string::npos);
  EXPECT_NE(colours.find("\033[33m"), std::string::npos);
  EXPECT_EQ(colours.find("aaaa"), std::string::npos);
}

TEST(Chart, LeavesOutWhatIsNotFiniteOrHasNoLogarithm) {
  const double nan = std::nan("");
  EXPECT_NE(chart("x", {{"run", {{1, nan}, {2, nan}}}}, kAscii).find("nothing to draw"), std::string::npos);
  EXPECT_NE(chart("x", {}, kAscii).find("nothing to draw"), std::string::npos);
  ChartStyle logarithmic = kAscii;
  logarithmic.logarithmic = true;
  const std::vector<ChartLine> falling = {{"run", {{1, 1000}, {2, 0}, {3, 100}, {5, 10}, {6, -1}, {7, 1}}}};
  const std::string drawn = chart("x", falling, logarithmic);
  EXPECT_NE(drawn.find(" 1000 +***"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("    1 +"), std::string::npos);
  EXPECT_NE(chart("x", {{"run", {{1, 5}}}}, kAscii).find('*'), std::string::npos);
}

// A column shows the mean of its points, however many there are.
TEST(Chart, ManyPointsShareColumns) {
  ChartLine line{"run", {}};
  for (int i = 0; i < 100000; ++i) line.points.emplace_back(i, i % 2 == 0 ? 0.0 : 2.0);
  line.points.emplace_back(100000, 4);
  const std::string drawn = chart("x", {line}, kAscii);
  EXPECT_NE(drawn.find("   |*******************"), std::string::npos) << drawn;
}

class PlotCommandLine : public testing::Test, protected TrainRuns {};

TEST_F(PlotCommandLine, DrawsRunsThatAreFinishedOrNot) {
  std::string metrics;
  for (int step = 1; step <= 50; ++step)
    metrics +=
        nlohmann::json{{"step", step}, {"loss", 3.0 / step}, {"lr", 0.1}, {"samples_per_second", 10 + step}}.dump() +
        "\n";
  for (const char* run : {"a", "b"}) {
    folder_.write(std::string(run) + "/ledger.jsonl", "");
    folder_.write(std::string(run) + "/metrics.jsonl",
                  metrics + R"({"step":50,"validation_loss":0.5,"validation_accuracy":0.9})" + "\n{\"step\":51,\"lo");
  }
  const Ended both = wait(spawn({"plot", folder_ / "a", folder_ / "b", "--width", "60"}));
  EXPECT_EQ(both.code, 0) << both.err;
  for (const char* word :
       {"loss by step", "samples or tokens a second by step", "accuracy by step", "  c b\n", "b, validation"})
    EXPECT_NE(both.out.find(word), std::string::npos) << word << "\n" << both.out;
  const Ended one = wait(spawn({"plot", folder_ / "a", "--metric", "lr", "--ascii", "--log"}));
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out.find("loss"), std::string::npos);
  for (const char c : one.out) EXPECT_GE(c, 0);
  const Ended unknown = wait(spawn({"plot", folder_ / "a", "--metric", "los"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("gradient_norm"), std::string::npos);
  EXPECT_EQ(wait(spawn({"plot", folder_ / "none"})).code, 2);
}

}  // namespace
}  // namespace elinvar::test
