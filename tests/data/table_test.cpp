// Tables from files, and made by a rule.
#include "data/table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/csv.h"
#include "data/loader.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct TableRow {
  std::vector<float> numbers;
  std::vector<int32_t> categories;
  float number = 0;
  int64_t label = 0;
};

TableRow row_of(const Dataset& data, int64_t index) {
  const SampleFormat format = data.format();
  TableRow row;
  SampleBuffers buffers(nullptr, format.target.dtype == DType::f32 ? static_cast<void*>(&row.number) : &row.label);
  buffers.inputs.clear();
  for (const Field& field : format.inputs) {
    const auto n = static_cast<size_t>(field.shape.numel());
    if (field.dtype == DType::f32) {
      row.numbers.resize(n);
      buffers.inputs.push_back(row.numbers.data());
    } else {
      row.categories.resize(n);
      buffers.inputs.push_back(row.categories.data());
    }
  }
  data.read(index, {}, buffers);
  return row;
}

// Ten rows, of which one is held out.
std::string people() {
  std::string text = "age,city,income,happy\r\n";
  const char* const cities[] = {"Bern", "\"Rome, north\"", "", "Bern", "Aarau", "Bern", "Chur", "Bern", "Bern", "Bern"};
  for (int i = 0; i < 10; ++i)
    text +=
        fmt::format("{},{},{},{}\r\n", i == 3 ? "" : std::to_string(20 + i), cities[i], 1000 * i, i % 3 ? "yes" : "no");
  return text;
}

DataConfig config_of(const std::string& path) {
  return {
      .kind = "table", .path = path, .target = {"income"}, .numbers = {"age"}, .categories = {"city"}, .scale = "none"};
}

// Spreadsheets write a byte order mark before the first name of a column.
TEST(Csv, MayBeginWithAByteOrderMark) {
  const TemporaryFolder folder;
  for (const char* text : {"\xEF\xBB\xBFx,y\n1,2\n", "\xEF\xBB\xBF\"x\",y\n1,2\n", "x,y\n1,2\n"}) {
    std::vector<std::string> found;
    each_csv_row(folder.write("a.csv", text), [&](int64_t line, std::span<const std::string> fields) {
      found.push_back(fmt::format("{}: {}", line, fmt::join(fields, "|")));
    });
    EXPECT_EQ(found, (std::vector<std::string>{"1: x|y", "2: 1|2"})) << text;
  }
  int rows = 0;
  for (const char* text : {"", "\xEF\xBB\xBF", "\xEF\xBB", "x"}) {
    each_csv_row(folder.write("short.csv", text), [&](int64_t, auto) { ++rows; });
  }
  EXPECT_EQ(rows, 2) << "the half of a mark is a text";
}

// A stream would wait at a pipe for ever, and find nothing in a folder.
TEST(Csv, MustBeARegularFile) {
  const TemporaryFolder folder;
  for (const char* name : {"/a.csv", "/a.jsonl", "/a.data"}) {
    const std::string path = folder.path() + name;
    if (path.ends_with(".data")) {
      ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    } else {
      std::filesystem::create_directory(path);
    }
    EXPECT_EQ(message_of<Failure>([&] { (void)open_rows(path); }),
              "cannot open " + path + ": it is not a regular file");
  }
  EXPECT_NE(message_of<Failure>([&] {
              (void)open_table(config_of(folder.path() + "/a.jsonl"), Split::train);
            }).find("has no files with rows"),
            std::string::npos);
}

TEST(Csv, HasQuotesEmptyFieldsAndLines) {
  const TemporaryFolder folder;
  std::vector<std::string> found;
  each_csv_row(folder.write("a.csv", "a,\"b \"\"c\"\"\",\n\n\"two\nlines\",2,3\r\nlast,,"),
               [&](int64_t line, std::span<const std::string> fields) {
                 found.push_back(fmt::format("{}: {}", line, fmt::join(fields, "|")));
               });
  EXPECT_EQ(found, (std::vector<std::string>{"1: a|b \"c\"|", "3: two\nlines|2|3", "5: last||"}));
  found.clear();
  each_csv_row(folder.write("a.tsv", "x\ty, z\n\t1\n"), [&](int64_t line, std::span<const std::string> fields) {
    found.push_back(fmt::format("{}: {}", line, fmt::join(fields, "|")));
  });
  EXPECT_EQ(found, (std::vector<std::string>{"1: x|y, z", "2: |1"}));
  const std::string bad = folder.write("bad.csv", "a,b\nc,\"d\" e\n");
  EXPECT_NE(message_of<Failure>([&] { each_csv_row(bad, [](int64_t, auto) {}); }).find("bad.csv', line 2: malformed"),
            std::string::npos);
  EXPECT_NE(
      message_of<Failure>([&] { each_csv_row(folder.path() + "/none.csv", [](int64_t, auto) {}); }).find("cannot open"),
      std::string::npos);
}

TEST(Table, HasNumbersCategoriesAndTargets) {
  const TemporaryFolder folder;
  std::string text = people();
  text.replace(text.find("\r\n,Bern"), 2 + 1, "\r\n23,");  // no number is missing
  const auto data = open_table(config_of(folder.write("people.csv", text)), Split::train);
  EXPECT_EQ(data->size(), 9);
  const SampleFormat format = data->format();
  ASSERT_EQ(format.inputs.size(), 2u);
  EXPECT_EQ(format.inputs[1].symbols, std::vector<int64_t>{5});  // Aarau, Bern, Chur, Rome, and a missing one
  EXPECT_EQ(format.target.dtype, DType::f32);
  std::set<float> seen;
  for (int64_t i = 0; i < 9; ++i) {
    const TableRow row = row_of(*data, i);
    EXPECT_EQ(row.number, 1000 * (row.numbers[0] - 20));
    const int place = static_cast<int>(row.numbers[0]) - 20;
    EXPECT_EQ(row.categories[0], place == 1 ? 4 : place == 2 ? 0 : place == 4 ? 1 : place == 6 ? 3 : 2) << place;
    seen.insert(row.number);
  }
  const auto validation = open_table(config_of(folder.path() + "/people.csv"), Split::validation);
  EXPECT_EQ(validation->size(), 1);
  EXPECT_TRUE(seen.insert(row_of(*validation, 0).number).second) << "the splits have no row in common";
}

TEST(Table, ClassesAndScales) {
  const TemporaryFolder folder;
  DataConfig config = config_of(folder.write("people.csv", people()));
  config.target = {"happy"};
  config.labels = true;
  config.categories = {};
  config.scale = "standard";
  const auto data = open_table(config, Split::train);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"no", "yes"}));
  double sum = 0, squares = 0;
  int missing = 0;
  for (int64_t i = 0; i < data->size(); ++i) {
    const float x = row_of(*data, i).numbers[0];
    sum += x;
    squares += x * x;
    missing += x == 0;
  }
  EXPECT_NEAR(sum, 0, 1e-5);  // each number was rounded to float32
  EXPECT_GE(missing, 1) << "a missing number is the mean";
  EXPECT_NEAR(squares, static_cast<double>(data->size() - missing), 1e-4);  // as above
  config.scale = "log";
  const auto logs = open_table(config, Split::train);
  for (int64_t i = 0; i < logs->size(); ++i) {
    const float x = row_of(*logs, i).numbers[0];
    EXPECT_TRUE(x == 0 || (x > std::log1p(19.0f) && x < std::log1p(30.0f))) << x;
  }
}

TEST(Table, AFolderMayHaveSplits) {
  const TemporaryFolder folder;
  folder.write("set/b_train.csv", "x,y\n1,10\n");
  folder.write("set/a_train.csv", "y,x\n20,2\n30,3\n");  // each file names its own columns
  folder.write("set/val.csv", "x,y\n4,40\n");
  folder.write("set/test.csv", "x,y\n5,50\n");
  const DataConfig config{
      .kind = "table", .path = folder.path() + "/set", .target = {"y"}, .numbers = {"x"}, .scale = "none"};
  const auto numbers = [&](Split split) {
    const auto data = open_table(config, split);
    std::vector<float> all;
    for (int64_t i = 0; i < data->size(); ++i) {
      const TableRow row = row_of(*data, i);
      EXPECT_EQ(row.number, 10 * row.numbers[0]);
      all.push_back(row.numbers[0]);
    }
    return all;
  };
  EXPECT_EQ(numbers(Split::train), (std::vector<float>{2, 3, 1}));
  EXPECT_EQ(numbers(Split::validation), (std::vector<float>{4}));
  EXPECT_EQ(numbers(Split::test), (std::vector<float>{5}));
}

TEST(Table, BucketsNeedNoList) {
  const TemporaryFolder folder;
  DataConfig config = config_of(folder.write("people.csv", people()));
  config.numbers = {};
  config.buckets = 3;
  const auto data = open_table(config, Split::train);
  EXPECT_EQ(data->format().inputs[0].symbols, std::vector<int64_t>{4});
  std::set<int32_t> found;
  for (int64_t i = 0; i < data->size(); ++i) found.insert(row_of(*data, i).categories[0]);
  EXPECT_TRUE(std::ranges::all_of(found, [](int32_t c) { return c >= 0 && c <= 3; }));
  EXPECT_GE(found.size(), 2u);
}

TEST(Table, ColumnsMayHaveSeveralCategories) {
  const TemporaryFolder folder;
  folder.write("set/train.csv", "city,tags,y\nBern,c;a,0\n,,1\nChur,b;b;a,2\n");
  folder.write("set/val.csv", "y,tags,city\n3,c,Bern\n");
  DataConfig config{.kind = "table", .path = folder.path() + "/set", .target = {"y"}, .categories = {"tags", "city"}};
  config.most_ids = {3, 1};
  config.separator = ";";
  const auto data = open_table(config, Split::train);
  const Field field = data->format().inputs[0];
  EXPECT_EQ(field.shape, (Shape{4}));
  EXPECT_EQ(field.symbols, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(field.most_ids, config.most_ids);
  const auto categories = [&](const Dataset& of, int64_t row) { return row_of(of, row).categories; };
  EXPECT_EQ(categories(*data, 0), (std::vector<int32_t>{3, 1, -1, 1}));
  EXPECT_EQ(categories(*data, 1), (std::vector<int32_t>{-1, -1, -1, 0})) << "a missing city is a category, as always";
  EXPECT_EQ(categories(*data, 2), (std::vector<int32_t>{2, 2, 1, 2}));
  EXPECT_EQ(categories(*open_table(config, Split::validation), 0), (std::vector<int32_t>{3, -1, -1, 1}));
  config.buckets = 2;
  const auto hashed = open_table(config, Split::train);
  EXPECT_EQ(hashed->format().inputs[0].symbols, (std::vector<int64_t>{3, 3}));
  const auto row = categories(*hashed, 2);
  EXPECT_TRUE(row[0] == row[1] && row[0] >= 1 && row[0] <= 2 && row[2] >= 1 && row[2] <= 2);
  config.buckets = 0;
  config.most_ids = {3, 2};
  EXPECT_NE(digest(*data), digest(*open_table(config, Split::train)));
}

TEST(Table, JsonHasTheRowsOfCsv) {
  const TemporaryFolder folder;
  folder.write("csv/train.csv", "x,city,tags,y\n1.5,Bern,7|a,0\n,,,1\n-2,Chur,b|b|7,1e-3\n");
  folder.write("csv/val.csv", "x,city,tags,y\n3,Bern,a,3\n");
  folder.write("json/train.jsonl",
               "{\"y\": 0, \"x\": 1.5, \"city\": \"Bern\", \"tags\": [7, \"a\"], \"more\": {}}\n\n"
               "{\"y\": \"1\", \"x\": null, \"city\": null, \"tags\": []}\n"
               "{\"y\": 0.001, \"x\": -2, \"city\": \"Chur\", \"tags\": \"b|b|7\"}\n");
  folder.write("json/val.jsonl", "{\"y\": 3, \"x\": 3, \"city\": \"Bern\", \"tags\": [\"a\"]}");
  DataConfig config{.kind = "table", .target = {"y"}, .numbers = {"x"}, .categories = {"city", "tags"}};
  config.most_ids = {1, 3};
  for (const Split split : {Split::train, Split::validation}) {
    config.path = folder.path() + "/csv";
    const auto csv = open_table(config, split);
    config.path = folder.path() + "/json";
    EXPECT_EQ(digest(*csv), digest(*open_table(config, split)));
  }
  const auto refusal = [&](const std::string& line) {
    config.path = folder.write("bad.jsonl", "{\"y\": 0, \"x\": 1, \"city\": \"a\", \"tags\": []}\n" + line + "\n");
    return message_of<std::exception>([&] { open_table(config, Split::train); });
  };
  const std::string begin = "{\"y\": 0, \"x\": 1, \"city\": ";
  for (const auto& [line, message] :
       {std::pair{begin + "\"a\"}", "line 2: the object has no 'tags'"},
        std::pair{begin + "[], \"tags\": []}", "line 2: 'city' must be text or a number"},
        std::pair{begin + "1, \"tags\": [\"a\", \"\"]}", "line 2: the list 'tags' must be of texts"},
        std::pair{begin + "1, \"tags\": [[]]}", "line 2: the list 'tags' must be of texts"},
        std::pair{begin + "1, \"tags\": [\"a|b\"]}", "line 2: 'a|b' in the list 'tags' has the separator '|'"},
        std::pair{begin + "1, \"tags\": [1, 2, 3, 4]}", "line 2, column 'tags': more categories than the 3"},
        std::pair{std::string("{\"y\": 0, \"x\": true, \"city\": 1, \"tags\": []}"),
                  "line 2, column 'x': 'true' is no number"}})
    EXPECT_NE(refusal(line).find(message), std::string::npos) << refusal(line);
}

TEST(Table, BagsOfOneAreOrdinaryColumns) {
  const TemporaryFolder folder;
  std::string text = people();
  text.replace(text.find("\r\n,Bern"), 2 + 1, "\r\n23,");
  DataConfig config = config_of(folder.write("people.csv", text));
  const auto data = open_table(config, Split::train);
  config.most_ids = {1};
  const auto same = open_table(config, Split::train);
  EXPECT_EQ(digest(*data), digest(*same));
  EXPECT_TRUE(same->format().inputs[1].most_ids.empty());
}

TEST(Table, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text, const auto& change) {
    DataConfig config = config_of(folder.write("rows.csv", text));
    change(config);
    return message_of<std::exception>([&] { open_table(config, Split::train); });
  };
  const auto as_is = [](DataConfig&) {};
  const std::string head = "age,city,income\n";
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.numbers = {"agee"}; }).find("did you mean 'age'"),
            std::string::npos);
  EXPECT_NE(refusal(people(), as_is).find("line 5, column 'age': a number is missing"), std::string::npos);
  EXPECT_NE(refusal(people(),
                    [](DataConfig& c) {
                      c.numbers = {"age", "age"};
                    })
                .find("data.numbers names 'age', which data.numbers names already"),
            std::string::npos);
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.numbers = c.target; }).find("which data.numbers names already"),
            std::string::npos);
  EXPECT_NE(refusal(head + "1,a,2\n1,a\n", as_is).find("line 3: 2 fields, but the first line names 3 columns"),
            std::string::npos);
  EXPECT_NE(refusal(head + "1,a,2\none,a,2\n", as_is).find("line 3, column 'age': 'one' is no number"),
            std::string::npos);
  EXPECT_NE(refusal(head + "1,a,\n", as_is).find("line 2, column 'income': the target is missing"), std::string::npos);
  EXPECT_NE(refusal(head + "inf,a,1\n", as_is).find("'inf' is no number"), std::string::npos);
  EXPECT_NE(refusal("", as_is).find("is empty"), std::string::npos);
  EXPECT_NE(refusal(head, as_is).find("has no rows for training"), std::string::npos);
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.target = {}; }).find("data.target must name"), std::string::npos);
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.scale = "linear"; }).find("data.scale must be"), std::string::npos);
  const auto bags = [](DataConfig& c) { c.most_ids = {2}; };
  EXPECT_NE(refusal(head + "1,a|b,2\n1,a|b|c,2\n", bags)
                .find("line 3, column 'city': more categories than the 2 of data.most_ids"),
            std::string::npos);
  for (const char* field : {"a||b", "|a", "a|", "|"})
    EXPECT_NE(refusal(head + "1,a,2\n1," + field + ",2\n", bags)
                  .find(fmt::format("line 3, column 'city': the field '{}' has an empty category", field)),
              std::string::npos)
        << field;
  EXPECT_NE(refusal(people(),
                    [](DataConfig& c) {
                      c.most_ids = {1, 2};
                    })
                .find("a number for each of the 1 columns"),
            std::string::npos);
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.most_ids = {0}; }).find("data.most_ids must be from 1 to"),
            std::string::npos);
  EXPECT_NE(refusal(people(), [](DataConfig& c) { c.separator = ""; }).find("data.separator must be one character"),
            std::string::npos);
}

// The rule's own loss is that of the probabilities that it draws targets with: no constant prediction does as well, and
// the targets agree with their probabilities.
TEST(SyntheticTable, HasTheLeastLossThatItSays) {
  const DataConfig config{.kind = "synthetic_table", .size = 20000, .features = 6, .symbols = {30, 20, 10}};
  const auto train = open_synthetic_table(config, Split::train),
             other = open_synthetic_table(config, Split::validation);
  EXPECT_EQ(train->size(), 20000);
  EXPECT_EQ(other->size(), 2000);
  const std::vector<std::string> notices = other->take_notices();
  ASSERT_EQ(notices.size(), 1u);
  const double best = std::stod(notices[0].substr(notices[0].find("loss of ") + 8));
  double ones = 0;
  for (int64_t i = 0; i < 2000; ++i) ones += row_of(*other, i).number;
  const double p = ones / 2000, constant = -p * std::log(p) - (1 - p) * std::log(1 - p);
  EXPECT_GT(p, 0.3);
  EXPECT_LT(p, 0.7);
  EXPECT_LT(best, 0.7 * constant);
  EXPECT_GT(best, 0.1);
  EXPECT_NE(digest(*train), digest(*other));
  const TableRow row = row_of(*train, 7);
  EXPECT_EQ(row.numbers.size(), 6u);
  EXPECT_EQ(row.categories.size(), 3u);
  EXPECT_LT(row.categories[2], 10);
}

// The rule gives a bag the sum of its categories' vectors, so a bag of one has the effect of that category alone.
TEST(SyntheticTable, HasBags) {
  const DataConfig config{
      .kind = "synthetic_table", .most_ids = {1, 4, 2}, .size = 3000, .features = 2, .symbols = {30, 5, 8}};
  const auto data = open_synthetic_table(config, Split::train);
  const Field field = data->format().inputs[1];
  EXPECT_EQ(field.shape, (Shape{7}));
  EXPECT_EQ(field.most_ids, config.most_ids);
  std::vector<int> sizes(5);
  for (int64_t i = 0; i < data->size(); ++i) {
    const std::vector<int32_t> row = row_of(*data, i).categories;
    ASSERT_TRUE(row[0] >= 0 && row[0] < 30);
    const auto end = std::find(row.begin() + 1, row.begin() + 5, -1);
    EXPECT_TRUE(std::all_of(row.begin() + 1, end, [](int32_t c) { return c >= 0 && c < 5; }));
    EXPECT_TRUE(std::all_of(end, row.begin() + 5, [](int32_t c) { return c == -1; }));
    ++sizes[static_cast<size_t>(end - row.begin() - 1)];
  }
  for (const int count : sizes) EXPECT_NEAR(count, 600, 120);  // five standard deviations of a fair draw
  DataConfig plain = config;
  plain.most_ids = {1, 1, 1};
  const auto ordinary = open_synthetic_table(plain, Split::train);
  plain.most_ids = {};
  EXPECT_EQ(digest(*ordinary), digest(*open_synthetic_table(plain, Split::train)));
  EXPECT_NE(digest(*ordinary), digest(*data));
}

TEST(SyntheticTable, BatchesHaveBothInputs) {
  const std::shared_ptr<const Dataset> data =
      open_dataset({.kind = "synthetic_table", .size = 100, .features = 2, .symbols = {9, 4}}, Split::train);
  Loader loader(data, {.seed = 3, .global_batch = 8, .virtual_ranks = 2, .threads = 1});
  const Batch batch = loader.batch(1, 1);
  ASSERT_EQ(batch.further_inputs.size(), 1u);
  EXPECT_EQ(batch.input.shape(), (Shape{4, 2}));
  EXPECT_EQ(batch.further_inputs[0].shape(), (Shape{4, 2}));
  EXPECT_EQ(batch.target.dtype(), DType::f32);
  for (int64_t i = 0; i < 4; ++i) {
    const TableRow row = row_of(*data, loader.index(0, 8 + 4 + i));
    EXPECT_EQ(batch.input.data<float>()[2 * i], row.numbers[0]);
    EXPECT_EQ(batch.further_inputs[0].data<int32_t>()[2 * i + 1], row.categories[1]);
    EXPECT_EQ(batch.target.data<float>()[i], row.number);
  }
}

}  // namespace
}  // namespace elinvar
