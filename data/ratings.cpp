#include "data/ratings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/csv.h"
#include "data/held_out.h"
#include "data/permutation.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kColumns[] = {"userId", "movieId", "rating", "timestamp"};
constexpr size_t kWidth = std::size(kColumns);

using RatingRow = std::function<void(int64_t line, std::span<const std::string> fields)>;

// Reads lines whose fields are between separators, without quotes and without names of columns.
void each_separated_row(const std::string& path, std::string_view separator, const RatingRow& row) {
  std::ifstream file = open_rows(path);
  std::string line;
  std::vector<std::string> fields;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    fields.clear();
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(separator, begin), line.size());
      fields.push_back(line.substr(begin, end - begin));
      begin = end + separator.size();
    }
    if (fields.size() != kWidth)
      fail("'{}', line {}: {} fields where {} are expected: {}", path, number, fields.size(), kWidth,
           fmt::join(kColumns, ", "));
    row(number, fields);
  }
  if (file.bad()) fail("cannot read '{}'", path);
}

// Reads a table whose first line names the columns, which may stand in any order and among others.
void each_named_row(const std::string& path, const RatingRow& row) {
  std::vector<size_t> places;
  size_t width = 0;
  std::vector<std::string> chosen(kWidth);
  each_csv_row(path, [&](int64_t line, std::span<const std::string> fields) {
    if (places.empty()) {
      const std::vector<std::string> names(fields.begin(), fields.end());
      for (const char* column : kColumns) {
        const auto at = std::ranges::find(names, column);
        if (at == names.end())
          fail("'{}', line {}: there is no column '{}'{}; the columns are {}", path, line, column,
               spelling_hint(column, names), fmt::join(names, ", "));
        places.push_back(static_cast<size_t>(at - names.begin()));
      }
      width = names.size();
      return;
    }
    if (fields.size() != width)
      fail("'{}', line {}: {} fields, but the first line names {} columns", path, line, fields.size(), width);
    for (size_t i = 0; i < kWidth; ++i) chosen[i] = fields[places[i]];
    row(line, chosen);
  });
  if (places.empty()) fail("'{}' is empty: its first line must name its columns", path);
}

// Returns the file of a folder that has ratings.
std::string ratings_file(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"ratings.csv", "u.data", "ratings.dat"})
    if (fs::exists(fs::path(path) / name)) return (fs::path(path) / name).string();
  fail("[ratings] '{}' has none of the files ratings.csv, u.data and ratings.dat", path);
}

template <class T>
T number_in(const std::string& text, const char* column, const std::string& where) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool good = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(value);
  if (!good) fail("{}, column '{}': '{}' is no {}", where, column, text, std::is_integral_v<T> ? "integer" : "number");
  return value;
}

struct Choice {
  int32_t user = 0, item = 0;
  int64_t time = 0, line = 0;
};

// The choices of a file, user by user in the order of time, with users and items numbered in the order of their texts.
struct Choices {
  std::vector<Choice> all;
  std::vector<std::string> users, items;  // texts
};

Choices read_choices(const std::string& path, double least) {
  std::map<std::string, int32_t, std::less<>> users, items;  // numbers in the order of appearance
  const auto number_of = [](auto& numbers, const std::string& text) {
    return numbers.try_emplace(text, static_cast<int32_t>(numbers.size())).first->second;
  };
  Choices choices;
  const RatingRow row = [&](int64_t line, std::span<const std::string> fields) {
    const std::string where = fmt::format("'{}', line {}", path, line);
    for (size_t i = 0; i < 2; ++i)
      if (fields[i].empty()) fail("{}, column '{}': it is empty", where, kColumns[i]);
    const auto rating = number_in<double>(fields[2], kColumns[2], where);
    const auto time = number_in<int64_t>(fields[3], kColumns[3], where);
    if (rating < least) return;
    choices.all.push_back({number_of(users, fields[0]), number_of(items, fields[1]), time, line});
  };
  if (path.ends_with(".dat")) each_separated_row(path, "::", row);
  else if (path.ends_with(".data")) each_separated_row(path, "\t", row);
  else each_named_row(path, row);

  const auto sort_texts = [](const auto& numbers, std::vector<std::string>& texts) {
    std::vector<int32_t> places(numbers.size());
    for (const auto& [text, number] : numbers) {
      places[static_cast<size_t>(number)] = static_cast<int32_t>(texts.size());
      texts.push_back(text);
    }
    return places;
  };
  const std::vector<int32_t> of_user = sort_texts(users, choices.users), of_item = sort_texts(items, choices.items);
  for (Choice& c : choices.all) {
    c.user = of_user[static_cast<size_t>(c.user)];
    c.item = of_item[static_cast<size_t>(c.item)];
  }
  std::ranges::sort(choices.all, {}, [](const Choice& c) { return std::tuple(c.user, c.time, c.line); });
  return choices;
}

class Ratings final : public Dataset {
 public:
  Ratings(const DataConfig& config, Split split)
      : training_(split == Split::train), others_(training_ ? config.negatives : config.candidates) {
    const std::string path = ratings_file(config.path);
    const Choices choices = read_choices(path, config.rating_min);
    if (choices.all.empty())
      fail("[ratings] '{}' has no rating of at least data.rating_min = {}", path, config.rating_min);
    users_ = static_cast<int64_t>(choices.users.size());
    items_ = static_cast<int64_t>(choices.items.size());
    gather_chosen(choices, path);
    divide(choices, config, split);
    if (choices_.empty()) fail("[ratings] '{}' has no choice for split \"{}\"", path, name_of(split));
    for (const Choice& c : choices_)
      check_setting(unchosen(c.user) >= (training_ ? 1 : others_), training_ ? "data.negatives" : "data.candidates",
                    "= {} items that a user never chose are needed, but user '{}' chose all but {} of {}", others_,
                    choices.users[static_cast<size_t>(c.user)], unchosen(c.user), items_);
  }

  int64_t size() const override { return static_cast<int64_t>(choices_.size()); }
  int64_t classes() const override { return 0; }
  SampleFormat format() const override {
    return {.inputs = {{Shape{1 + others_, 2}, DType::i32, {users_, items_}}},
            .target = {Shape{1 + others_}, DType::f32}};
  }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    const Choice& choice = choices_[static_cast<size_t>(index)];
    auto* pair = sample.input<int32_t>();
    float* target = sample.target<float>();
    const auto add = [&](int32_t item, float chosen) {
      *pair++ = choice.user;
      *pair++ = item;
      *target++ = chosen;
    };
    add(choice.item, 1);
    const int64_t count = unchosen(choice.user);
    if (training_) {
      // Samples without augmentation are those of epoch 0 of seed 0.
      const uint64_t key = (draw.augment ? draw.seed : 0) ^ key_of("data.negatives");
      const auto epoch = static_cast<uint32_t>(draw.augment ? draw.epoch : 0);
      for (int64_t i = 0; i < others_; ++i) {
        const Random4 random = philox(key, epoch, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                      static_cast<uint32_t>(i));
        add(unchosen(choice.user, random_below(random.v[0], count)), 0);
      }
      return;
    }
    const Permutation order(count, key_of("data.candidates"), static_cast<uint64_t>(index));
    for (int64_t i = 0; i < others_; ++i) add(unchosen(choice.user, order(i)), 0);
  }

  void describe(Hasher& hasher) const override {
    for (const int64_t v : {int64_t{training_}, others_, users_, items_}) hasher.add_integer(v);
    for (const Choice& c : choices_) {
      hasher.add_integer(c.user);
      hasher.add_integer(c.item);
    }
    hasher.add(chosen_.data(), chosen_.size() * sizeof(int32_t));
  }

 private:
  // Keeps each user's items, ascending.
  void gather_chosen(const Choices& choices, const std::string& path) {
    std::vector<Choice> sorted = choices.all;
    std::ranges::sort(sorted, {}, [](const Choice& c) { return std::tuple(c.user, c.item, c.line); });
    begins_.push_back(0);
    for (size_t i = 0; i < sorted.size(); ++i) {
      const Choice& c = sorted[i];
      if (i > 0 && c.user == sorted[i - 1].user && c.item == sorted[i - 1].item)
        fail("'{}', line {}: user '{}' has rated item '{}' in line {} already", path, c.line,
             choices.users[static_cast<size_t>(c.user)], choices.items[static_cast<size_t>(c.item)],
             sorted[i - 1].line);
      chosen_.push_back(c.item);
      if (i + 1 == sorted.size() || sorted[i + 1].user != c.user) begins_.push_back(chosen_.size());
    }
  }

  void divide(const Choices& choices, const DataConfig& config, Split split) {
    std::vector<Choice> training, latest;
    for (size_t i = 0; i < choices.all.size(); ++i) {
      const bool first = i == 0 || choices.all[i - 1].user != choices.all[i].user,
                 last = i + 1 == choices.all.size() || choices.all[i + 1].user != choices.all[i].user;
      (last && !first ? latest : training).push_back(choices.all[i]);
    }
    if (split == Split::test || (split == Split::validation && config.validation_fraction == 0)) {
      choices_ = std::move(latest);
      return;
    }
    if (config.validation_fraction == 0) {
      choices_ = std::move(training);
      return;
    }
    for (const int64_t place :
         held_out(std::ssize(training), config.validation_fraction, split == Split::train, "choices"))
      choices_.push_back(training[static_cast<size_t>(place)]);
  }

  std::span<const int32_t> items_of(int32_t user) const {
    const size_t begin = begins_[static_cast<size_t>(user)];
    return std::span(chosen_).subspan(begin, begins_[static_cast<size_t>(user) + 1] - begin);
  }
  // The number of items that a user never chose, and the one at this place among them.
  int64_t unchosen(int32_t user) const { return items_ - static_cast<int64_t>(items_of(user).size()); }
  int32_t unchosen(int32_t user, int64_t place) const {
    // As many of the user's items come before it as have at most `place` others before themselves.
    const std::span<const int32_t> items = items_of(user);
    size_t low = 0, high = items.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (items[middle] - static_cast<int64_t>(middle) <= place) low = middle + 1;
      else high = middle;
    }
    return static_cast<int32_t>(place + static_cast<int64_t>(low));
  }

  bool training_;
  int64_t others_, users_ = 0, items_ = 0;
  std::vector<Choice> choices_;  // of the split
  std::vector<int32_t> chosen_;  // items, user after user
  std::vector<size_t> begins_;   // of each user's, and the end
};

}  // namespace

std::unique_ptr<Dataset> open_ratings(const DataConfig& config, Split split) {
  check_setting(std::isfinite(config.rating_min), "data.rating_min", "must be a number, got {}", config.rating_min);
  for (const auto& [key, value] :
       {std::pair("data.negatives", config.negatives), std::pair("data.candidates", config.candidates)})
    check_setting(value >= 1 && value <= 65536, key, "must be from 1 to 65536, got {}", value);
  return std::make_unique<Ratings>(config, split);
}

}  // namespace elinvar
