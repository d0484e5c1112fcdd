#include "tools/launch/companions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tensor/base/check.h"
#include "tools/launch/link_measurement.h"

namespace elinvar {
namespace {

using Answer = nlohmann::ordered_json;

TEST(Companions, AnswersComeByIndex) {
  const std::vector<Answer> answers = in_children(3, [](Companions& companions) -> Answer {
    return {{"index", companions.index()}, {"pid", ::getpid()}};
  });
  ASSERT_EQ(answers.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[static_cast<size_t>(i)].at("index"), i);
    EXPECT_NE(answers[static_cast<size_t>(i)].at("pid"), ::getpid());
  }
}

TEST(Companions, ExchangeTextsAgainAndAgain) {
  const std::vector<Answer> answers = in_children(3, [](Companions& companions) -> Answer {
    Answer texts = Answer::array();
    for (int round = 0; round < 20; ++round) {
      std::string joined;
      for (const std::string& text : companions.exchange(std::to_string(1000 - 50 * round + companions.index())))
        joined += text + " ";
      texts.push_back(joined);
    }
    return {{"texts", texts}, {"greatest", companions.greatest(0.5 * companions.index())}};
  });
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.at("texts").at(19), "50 51 52 ");
    EXPECT_EQ(answer, answers[0]);
    EXPECT_EQ(answer.at("greatest"), 1.0);
  }
}

TEST(Companions, AnErrorEndsAll) {
  const auto run = [](const std::function<void(int)>& breaks) {
    (void)in_children(3, [&](Companions& companions) -> Answer {
      breaks(companions.index());
      companions.meet();
      return {};
    });
  };
  const auto message_of = [&](const std::function<void(int)>& breaks) {
    try {
      run(breaks);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THROW(run([](int i) { check(i != 1, "the second has wrong settings"); }), UsageError);
  EXPECT_EQ(message_of([](int i) { check(i != 1, "the second has wrong settings"); }), "the second has wrong settings");
  EXPECT_EQ(message_of([](int i) {
              if (i == 2) ::raise(SIGKILL);
            }),
            "a process that measures was killed by signal 9");
}

TEST(LinkMeasurement, MeasuresTwoProcesses) {
  const MeasuredLink link = measure_link({});
  EXPECT_GT(link.latency, 1e-7);
  EXPECT_LT(link.latency, 1);
  EXPECT_GT(link.bandwidth, 1e6);
  EXPECT_LT(link.bandwidth, 1e12);
  EXPECT_GT(link.processor, 1e-12);
  EXPECT_LT(link.processor, 1e-6);
}

}  // namespace
}  // namespace elinvar
