// The files that runs write for TensorBoard, read by a reader of the tests; with tests/golden/check_tensorboard.py
// TensorBoard itself reads them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "data/image.h"
#include "tests/jobs/event_reader.h"
#include "tests/jobs/tiny_job.h"
#include "tools/training/event_file.h"
#include "tools/training/observer.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

TEST(EventFile, Crc32cIsThatOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(EventFile, RecordsAreReadBackAndDamageIsFound) {
  std::string file = tf_record("") + tf_record("one") + tf_record(std::string(1000, '\x80'));
  const std::vector<std::string> records = tf_records(file);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1], "one");
  EXPECT_EQ(tf_records(file.substr(0, file.size() - 1)).size(), 2u);
  file[16 + 13] ^= 1;
  EXPECT_THROW(tf_records(file), std::runtime_error);
}

TEST(EventFile, ALaterPartTellsFromWhereOnItCounts) {
  const TemporaryFolder folder;
  const auto loss = [](double value) {
    Summary summary;
    summary.scalar("loss", value);
    return summary.bytes();
  };
  {
    EventFile first(folder / "run", 1, 0);
    for (int step = 1; step <= 5; ++step) first.add(step, loss(step));
    first.write();
  }
  EventFile second(folder / "run", 2, 3);
  second.add(4, loss(-4));
  EXPECT_EQ(read_events(folder / "run/tensorboard").at("loss").size(), 3u) << "it is not written yet";
  second.write();
  const auto events = read_events(folder / "run/tensorboard");
  std::vector<std::pair<int64_t, float>> told;
  for (const SummaryValue& v : events.at("loss")) told.emplace_back(v.step, v.value.short_real(2));
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, float>>{{1, 1.0f}, {2, 2.0f}, {3, 3.0f}, {4, -4.0f}}));
}

// The folder of the terms' records was lost.
TEST(EventFile, TermNumbersMayRestart) {
  const TemporaryFolder folder;
  for (const int64_t step : {0, 3, 5}) {
    EventFile part(folder / "run", 1, step);
    Summary summary;
    summary.scalar("loss", static_cast<double>(step));
    part.add(step + 1, summary.bytes());
    part.write();
  }
  const auto events = read_events(folder / "run/tensorboard");
  std::vector<int64_t> steps;
  for (const SummaryValue& v : events.at("loss")) steps.push_back(v.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 4, 6}));
}

TEST(Histogram, EveryValueIsCountedInItsBucket) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInfinite = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, kMost, -kMost, 1.0f, -1.0f, 3.5f, -1e-45f, 0.1f, 0.1f};
  for (int i = 0; i < 2000; ++i)
    values.push_back(std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 40 - 20)));
  std::vector<float> all = values;
  all.insert(all.end(), {kInfinite, -kInfinite, std::nanf("")});
  const Histogram h = histogram_of(all);
  ASSERT_EQ(h.limits.size(), h.counts.size());
  EXPECT_EQ(h.count, static_cast<double>(values.size()));
  EXPECT_EQ(h.min, -kMost);
  EXPECT_EQ(h.max, kMost);
  EXPECT_GT(h.counts.front(), 0);
  EXPECT_GT(h.counts.back(), 0);
  std::vector<double> found(h.counts.size());
  for (const float value : values) {
    size_t bucket = 0;
    while (value > h.limits[bucket] || (value >= 0 && value == h.limits[bucket] && value < kMost)) ++bucket;
    ++found.at(bucket);
  }
  EXPECT_EQ(found, h.counts);
  for (size_t i = 1; i < h.limits.size(); ++i) {
    EXPECT_LT(h.limits[i - 1], h.limits[i]);
    EXPECT_FALSE(h.counts[i] == 0 && h.counts[i - 1] == 0) << "two empty buckets beside each other";
  }
}

TEST(Histogram, OfNothingIsEmpty) {
  const std::vector<float> nothing = {std::nanf("")};
  EXPECT_TRUE(histogram_of(nothing).limits.empty());
  const std::vector<float> one = {-2.0f, -2.0f};
  EXPECT_EQ(histogram_of(one).counts, std::vector<double>{2});
  EXPECT_EQ(histogram_of(one).sum_squares, 8);
}

TEST(Summary, HoldsImagesAndTexts) {
  Image image(2, 3, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(14 * i);
  Summary summary;
  summary.image("picture", image);
  summary.text("words", "a\nb\xC3\xA9\xF8");
  const ProtoFields fields = proto(summary.bytes());
  ASSERT_EQ(fields.texts.count(1), 2u);
  const auto first = fields.texts.begin();
  const ProtoFields picture = proto(proto(first->second).text(4)), words = proto(std::next(first)->second);
  EXPECT_EQ(picture.number(1), 2u);
  EXPECT_EQ(picture.number(2), 3u);
  EXPECT_EQ(picture.number(3), 3u);
  EXPECT_EQ(decode_image(picture.text(4), 3, "picture").pixels, image.pixels);
  EXPECT_EQ(words.text(1), "words");
  EXPECT_EQ(proto(proto(words.text(9)).text(1)).text(1), "text");
  EXPECT_EQ(proto(words.text(8)).number(1), 7u);
  EXPECT_EQ(proto(words.text(8)).text(8), "    a\n    b\xC3\xA9\xEF\xBF\xBD");
}

TEST(Picture, IsStretchedToTheRangeOfAByte) {
  const Image picture = picture_of(Tensor::from(std::vector<float>{-1, 0, 1, 3}, {2, 2, 1}));
  EXPECT_EQ(picture.pixels, (std::vector<uint8_t>{0, 64, 128, 255}));
  EXPECT_EQ(picture_of(Tensor::full({1, 1, 3}, 5)).pixels, (std::vector<uint8_t>{0, 0, 0}));
  EXPECT_THROW(picture_of(Tensor::full({1, 1, 2}, 5)), UsageError);
}

class TensorBoardJob : public TinyJob {
 protected:
  // Checks that scalars have the numbers of metrics.jsonl, once per step.
  void expect_told_as_metrics(const std::string& run) const {
    const auto events = read_events(folder_ / run / "tensorboard");
    std::map<int64_t, Json> steps;
    for (const std::string& line : lines_of(read_file(folder_ / run / "metrics.jsonl"))) {
      const Json json = Json::parse(line);
      if (json.contains("loss")) steps[json["step"].get<int64_t>()] = json;
      else EXPECT_EQ(events.at("validation/loss").back().value.short_real(2), json["validation_loss"].get<float>());
    }
    ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
    for (const auto& [tag, key] : {std::pair("train/loss", "loss"), std::pair("train/accuracy", "accuracy"),
                                   std::pair("train/learning_rate", "lr"), std::pair("job/generation", "generation"),
                                   std::pair("train/gradient_norm", "gradient_norm")}) {
      const std::vector<SummaryValue>& values = events.at(tag);
      ASSERT_EQ(values.size(), steps.size()) << tag;
      for (const SummaryValue& v : values) EXPECT_EQ(v.value.short_real(2), steps.at(v.step)[key].get<float>()) << tag;
    }
  }
};

TEST_F(TensorBoardJob, IsToldWhatMetricsTellWhoeverDies) {
  expect_told_as_metrics("whole");
  const Ended part = wait(start("run", {"--workers", "2", "--until", "20"}), "run");
  ASSERT_EQ(part.code, 0) << part.err;
  EXPECT_EQ(run_through("run", {"--resume", "--workers", "2", "--set", "tensorboard.histograms_every=10", "--chaos",
                                "kill:worker=1,step=50;kill:all,step=70"}),
            "");
  expect_told_as_metrics("run");
  EXPECT_GE(std::distance(std::filesystem::directory_iterator(folder_ / "run/tensorboard"), {}), 2);
}

TEST_F(TensorBoardJob, SeesHistogramsAndImagesWhileTheBitsStayAsTheyAre) {
  const std::vector<std::string> settings = {"tensorboard.scalars=false", "tensorboard.histograms_every=50",
                                             "tensorboard.images_every=75", "tensorboard.images=2"};
  std::vector<std::string> options = {"--workers", "2"};
  for (const std::string& setting : settings) options.insert(options.end(), {"--set", setting});
  EXPECT_EQ(run_through("run", options), "");
  const auto events = read_events(folder_ / "run/tensorboard");
  EXPECT_FALSE(events.contains("train/loss"));
  size_t parameters = 0, gradients = 0;
  for (const auto& [tag, values] : events) {
    const bool parameter = tag.starts_with("parameters/"), gradient = tag.starts_with("gradients/");
    parameters += parameter;
    gradients += gradient;
    if (parameter || gradient) {
      ASSERT_EQ(values.size(), 3u) << tag;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(values[i].step, static_cast<int64_t>(50 * (i + 1)));
        const ProtoFields histogram = proto(values[i].value.text(5));
        double sum = 0;
        for (const double count : packed_reals(histogram.text(7))) sum += count;
        EXPECT_EQ(sum, histogram.real(3));
        EXPECT_GT(sum, 0);
        EXPECT_LE(histogram.real(1), histogram.real(2));
      }
    }
  }
  EXPECT_GT(parameters, 4u);
  EXPECT_EQ(parameters, gradients);
  for (const char* tag : {"inputs/0", "inputs/1"}) {
    ASSERT_EQ(events.at(tag).size(), 2u);
    const Image image = decode_image(proto(events.at(tag)[1].value.text(4)).text(4), 3, tag);
    EXPECT_EQ(image.height, 4);
    EXPECT_EQ(*std::max_element(image.pixels.begin(), image.pixels.end()), 255);
  }
}

// Several summaries arrive before the facts of the first: each took its time from its own step.
TEST_F(TensorBoardJob, LooksAreCountedAsTheStepsThatTheyWereBeside) {
  EXPECT_EQ(run_through("run", {"--set", "tensorboard.histograms_every=2"}), "");
  const Json lost = Json::parse(read_file(folder_ / "run/result.json")).at("goodput").at("lost");
  EXPECT_EQ(lost.at("evaluating").at("times"), kSteps / 2);
}

TEST_F(TensorBoardJob, MayBeSwitchedOffAndOnAgain) {
  // On a loaded machine the workers may hear of the stop after the last step.
  int64_t made = kSteps;
  for (int attempt = 0; made == kSteps && attempt < 20; ++attempt) {
    std::filesystem::remove_all(folder_ / "run");
    const Ended none = wait(start("run", {"--set", "tensorboard.scalars=false", "--until", "10"}), "run");
    ASSERT_EQ(none.code, 0) << none.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/tensorboard"));
    made = recorded("run");
  }
  ASSERT_LT(made, kSteps);
  const Ended rest = wait(start("run", {"--resume"}), "run");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(read_events(folder_ / "run/tensorboard").at("train/loss").front().step, made + 1);
}

TEST_F(TensorBoardJob, OfTextSeesHowTheNetworkGoesOn) {
  folder_.write("text.toml", R"([run]
steps = 4
batch_size = 4
[data]
kind = "synthetic_text"
size = 60
context = 16
[model]
kind = "gpt"
layers = 1
heads = 2
channels = 8
[tensorboard]
text_every = 2
prompt = "12+"
text_tokens = 10
)");
  const Ended ended = wait(spawn({"run", folder_ / "text.toml", "--run-dir", folder_ / "text", "--threads", "1"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto told = read_events(folder_ / "text/tensorboard");
  const std::vector<SummaryValue>& texts = told.at("text");
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].step, 4);
  for (const SummaryValue& v : texts) EXPECT_EQ(proto(v.value.text(8)).text(8).substr(0, 7), "    12+");
  // The last text is that of `train sample` with the same network.
  const Ended sample = wait(spawn({"sample", folder_ / "text", "--prompt", "12+", "--tokens", "10", "--threads", "1"}));
  Summary same;
  same.text("text", sample.out.substr(0, sample.out.size() - 1));
  EXPECT_EQ(proto(texts[1].value.text(8)).text(8), proto(proto(proto(same.bytes()).text(1)).text(8)).text(8));

  const auto refused = [&](const std::string& config, const std::string& setting) {
    const Ended no = wait(spawn({"run", folder_ / config, "--run-dir", folder_ / "no", "--set", setting}));
    EXPECT_EQ(no.code, 2) << no.err;
    return no.err;
  };
  EXPECT_NE(refused("text.toml", "tensorboard.images_every=1").find("the data are text"), std::string::npos);
  EXPECT_NE(refused("text.toml", "tensorboard.prompt=").find("must not be empty"), std::string::npos);
  EXPECT_NE(refused("job.toml", "tensorboard.text_every=1").find("the data are images"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
