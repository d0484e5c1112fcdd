// Images with boxes: COCO's annotations, squares, flips, and what is refused.
#include "data/coco.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/image_files.h"
#include "data/letterbox.h"
#include "tests/data/image_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

const std::string kCategories = R"("categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "ant"}])";

std::string coco_text(const std::string& annotations, const std::string& images = R"(
    {"id": 5, "file_name": "b.png", "width": 8, "height": 4},
    {"id": 2, "file_name": "a.png", "width": 4, "height": 8, "license": 1})") {
  return "{\"images\": [" + images + "],\n\"annotations\": [" + annotations + "],\n" + kCategories + "}";
}

std::string coco_refusal(const std::string& text) {
  return message_of<Failure>([&] { read_coco(text, "x.json"); });
}

TEST(Coco, AnnotationsAreRead) {
  const CocoAnnotations all = read_coco(coco_text(R"(
      {"id": 1, "image_id": 5, "category_id": 7, "bbox": [1, 1, 2.5, 2], "segmentation": [[1, 2, [3]]], "area": 5},
      {"id": 2, "image_id": 5, "category_id": 3, "bbox": [0, 0, 8, 4], "iscrowd": 1},
      {"id": 3, "image_id": 2, "category_id": 3, "bbox": [-0.25, 7, 4.5, 1.5], "iscrowd": 0})"),
                                        "x.json");
  EXPECT_EQ(all.class_names, (std::vector<std::string>{"ant", "cat"}));
  ASSERT_EQ(all.images.size(), 2u);
  EXPECT_EQ(all.images[0].file, "a.png");
  ASSERT_EQ(all.images[0].boxes.size(), 1u);
  const ImageBox& cut = all.images[0].boxes[0];  // at the border
  EXPECT_EQ(cut.label, 0);
  EXPECT_EQ(std::vector<double>({cut.x1, cut.y1, cut.x2, cut.y2}), (std::vector<double>{0, 7, 4, 8}));
  ASSERT_EQ(all.images[1].boxes.size(), 1u);  // without the crowd
  EXPECT_EQ(all.images[1].boxes[0].label, 1);
  EXPECT_EQ(all.images[1].boxes[0].x2, 3.5);
}

TEST(Coco, BadAnnotationsAreNamed) {
  const auto box = [](const std::string& numbers) {
    return coco_refusal(coco_text(R"({"id": 41, "image_id": 5, "category_id": 7, "bbox": )" + numbers + "}"));
  };
  EXPECT_EQ(box("[7, 1, 3, 2]"),
            "[coco] 'x.json': annotation 41 has the box [7, 1, 3, 2], which is not within image 5 of 8 x 4");
  EXPECT_NE(box("[-2, 1, 3, 2]").find("is not within image 5"), std::string::npos);
  EXPECT_NE(box("[1, 1, 0, 2]").find("annotation 41 has the box [1, 1, 0, 2], which has no area"), std::string::npos);
  EXPECT_NE(box("[3, 1, -2, 2]").find("has no area"), std::string::npos);
  EXPECT_NE(box("[8, 1, 1, 2]").find("has no area"), std::string::npos) << "nothing is left within the image";
  EXPECT_NE(box("[1, 1, 1]").find("annotation 41 needs four numbers as \"bbox\""), std::string::npos);
  EXPECT_NE(box("[1, 1, 1, \"2\"]").find("needs four numbers"), std::string::npos);

  const auto fields = [](const std::string& text) { return coco_refusal(coco_text("{\"id\": 9, " + text + "}")); };
  EXPECT_NE(fields(R"("image_id": 6, "category_id": 7, "bbox": [1, 1, 1, 1])").find("annotation 9 is of image 6"),
            std::string::npos);
  EXPECT_NE(fields(R"("image_id": 5, "category_id": 8, "bbox": [1, 1, 1, 1])").find("annotation 9 has category 8"),
            std::string::npos);
  EXPECT_NE(fields(R"("image_id": 5, "category_id": 7)").find("annotation 9 has no \"bbox\""), std::string::npos);
  EXPECT_NE(fields(R"("image_id": "5", "category_id": 7)").find("needs an integer"), std::string::npos);
  EXPECT_NE(fields(R"("image_id": 1e300, "category_id": 7)").find("needs an integer"), std::string::npos);

  EXPECT_NE(coco_refusal("{\"images\": [],\n\"annotations\": [,]}").find("'x.json' is no JSON: parse error at line 2"),
            std::string::npos);
  EXPECT_NE(coco_refusal("").find("is no JSON"), std::string::npos);
  EXPECT_NE(coco_refusal("[1]").find("has no list \"categories\""), std::string::npos);
  EXPECT_NE(coco_refusal("{" + kCategories + "}").find("has no list \"images\""), std::string::npos);
  EXPECT_NE(coco_refusal("{\"categories\": []}").find("has no categories"), std::string::npos);
  EXPECT_NE(coco_refusal("{\"categories\": [{\"id\": 1, \"name\": 3}]}").find("category 1 needs a text as \"name\""),
            std::string::npos);
  EXPECT_NE(
      coco_refusal(coco_text("", R"({"id": 1, "file_name": "a", "width": 0, "height": 2})")).find("has no pixels"),
      std::string::npos);
  const std::string image = R"({"id": 1, "file_name": "a", "width": 1, "height": 2})";
  EXPECT_NE(coco_refusal(coco_text("", image + "," + image)).find("image 1 occurs twice"), std::string::npos);
  EXPECT_NE(coco_refusal(std::string(100000, '[')).find("nested deeper"), std::string::npos);
}

TEST(Coco, BrokenBoxesCanBeLeftOut) {
  std::vector<std::string> messages;
  const CocoAnnotations all = read_coco(coco_text(R"(
      {"id": 1, "image_id": 5, "category_id": 7, "bbox": [1, 1, 0, 2]},
      {"id": 2, "image_id": 5, "category_id": 7, "bbox": [1, 1, 1, 2]})"),
                                        "x.json", [&](const std::string& m) { messages.push_back(m); });
  EXPECT_EQ(all.images[1].boxes.size(), 1u);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("annotation 1 has the box"), std::string::npos);
}

// A folder as COCO's archives leave it, of two training images and one for validation.
struct CocoFolder {
  TemporaryFolder folder;
  Image tall = test::random_image(8, 4, 3, 1), wide = test::random_image(4, 8, 3, 2);

  CocoFolder() {
    folder.write("train2017/a.png", test::png(tall));
    folder.write("train2017/b.png", test::png(wide));
    folder.write("annotations/instances_train2017.json",
                 coco_text(R"({"id": 1, "image_id": 2, "category_id": 7, "bbox": [1, 2, 2, 4]},
                              {"id": 2, "image_id": 5, "category_id": 3, "bbox": [0, 0, 2, 4]})"));
    folder.write("images/val2017/b.png", test::png(wide));
    folder.write("annotations/instances_val2017.json",
                 coco_text("", R"({"id": 5, "file_name": "b.png", "width": 8, "height": 4})"));
    folder.write("annotations/captions_train2017.json", "{}");
  }
  DataConfig config() const {
    return {.kind = "coco",
            .path = folder.path(),
            .image_size = 8,
            .flip = true,
            .mean = {0, 0, 0},
            .std = {1, 1, 1},
            .boxes = 2};
  }
};

struct BoxSample {
  std::vector<float> pixels = std::vector<float>(8 * 8 * 3), targets = std::vector<float>(2 * 5);
  bool operator==(const BoxSample&) const = default;
};

BoxSample read_box_sample(const Dataset& data, int64_t index, const Draw& draw = {}) {
  BoxSample sample;
  data.read(index, draw, {sample.pixels.data(), sample.targets.data()});
  return sample;
}

TEST(Coco, ImagesLieInSquaresAndBoxesGoAlong) {
  const CocoFolder coco;
  const auto data = open_dataset(coco.config(), Split::train), other = open_dataset(coco.config(), Split::validation);
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->classes(), 2);
  EXPECT_EQ(data->class_names()[1], "cat");
  EXPECT_EQ(data->target_shape(), (Shape{2, 5}));
  EXPECT_EQ(other->size(), 1);
  EXPECT_NE(digest(*data), digest(*other));
  const BoxSample sample = read_box_sample(*data, 0);
  EXPECT_EQ(sample.targets, (std::vector<float>{1, 0.5f, 0.5f, 0.25f, 0.5f, -1, 0, 0, 0, 0}));
  for (int64_t i = 0; i < 8 * 8 * 3; ++i) {
    const int64_t y = i / 24, x = i / 3 % 8, c = i % 3;
    const bool inside = x >= 2 && x < 6;  // 4 x 8 pixels in the middle, not scaled
    const int byte = inside ? coco.tall.pixels[static_cast<size_t>((y * 4 + x - 2) * 3 + c)] : 128;
    ASSERT_EQ(sample.pixels[static_cast<size_t>(i)], static_cast<float>(byte) / 255.0f) << i;
  }
}

// A flip mirrors pixels and boxes, depends on seed, epoch and sample alone, and comes about half of the time.
TEST(Coco, FlipsMoveTheBoxes) {
  const CocoFolder coco;
  const auto data = open_dataset(coco.config(), Split::train);
  const BoxSample plain = read_box_sample(*data, 1);
  EXPECT_EQ(plain.targets, (std::vector<float>{0, 0.125f, 0.5f, 0.25f, 0.5f, -1, 0, 0, 0, 0}));
  BoxSample mirrored = plain;
  mirrored.targets[1] = 0.875f;
  for (size_t i = 0; i < mirrored.pixels.size(); ++i)
    mirrored.pixels[i] = plain.pixels[i / 24 * 24 + (7 - i / 3 % 8) * 3 + i % 3];
  int flips = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const Draw draw{.seed = 3, .epoch = epoch, .augment = true};
    const BoxSample found = read_box_sample(*data, 1, draw);
    EXPECT_TRUE(found == plain || found == mirrored);
    EXPECT_TRUE(read_box_sample(*data, 1, draw) == found);
    flips += found == mirrored;
  }
  EXPECT_GT(flips, 10);
  EXPECT_LT(flips, 30);
}

TEST(Coco, FoldersOfOtherToolsAreRead) {
  TemporaryFolder folder;
  for (const std::string part : {"set/train/", "set/valid/"}) {
    folder.write(part + "b.png", test::png(test::random_image(4, 8, 3, 2)));
    folder.write(part + "_annotations.coco.json",
                 coco_text("", R"({"id": 5, "file_name": "b.png", "width": 8, "height": 4})"));
  }
  const auto data = open_dataset({.kind = "coco", .path = folder.path(), .image_size = 8}, Split::train);
  EXPECT_EQ(data->size(), 1);
}

// Files in which boxes are to be found are prepared as samples are, and boxes lead back to their pixels.
TEST(Coco, FilesArePreparedAsSamples) {
  const CocoFolder coco;
  const auto data = open_dataset(coco.config(), Split::train);
  const ImageFiles files(coco.config(), form_of(*data), {coco.folder / "train2017/b.png"});
  EXPECT_EQ(files.format().target.shape, data->target_shape());
  const BoxSample sample = read_box_sample(*data, 1), file = read_box_sample(files, 0);
  EXPECT_EQ(file.pixels, sample.pixels);
  EXPECT_EQ(file.targets, (std::vector<float>{-1, 0, 0, 0, 0, -1, 0, 0, 0, 0}));
  const ImageBox box = files.in_image(0, {1, 0, 0.25, 0.5, 1});  // the left half, with grey below
  EXPECT_EQ(std::vector<double>({box.x1, box.y1, box.x2, box.y2}), (std::vector<double>{0, 0, 4, 4}));
}

TEST(Coco, BadSetsAreNamed) {
  const auto refusal = [](const CocoFolder& coco, DataConfig config, Split split = Split::train) {
    config.path = coco.folder.path();
    const auto read = [&] { read_box_sample(*open_dataset(config, split), 0); };
    const std::string usage = message_of<UsageError>([&] {
      try {
        read();
      } catch (const Failure&) {
      }
    });
    return usage.empty() ? message_of<Failure>(read) : usage;
  };
  CocoFolder coco;
  DataConfig config = coco.config();
  config.image_size = 0;
  EXPECT_NE(refusal(coco, config).find("data.image_size must be from 8"), std::string::npos);
  config = coco.config();
  config.crop_padding = 2;
  EXPECT_NE(refusal(coco, config).find("data.crop_padding does not apply to data of kind"), std::string::npos);
  config = coco.config();
  config.boxes = 0;
  EXPECT_NE(refusal(coco, config).find("data.boxes must be from 1"), std::string::npos);

  std::filesystem::remove(coco.folder / "train2017/a.png");
  EXPECT_NE(refusal(coco, coco.config()).find("instances_train2017.json': image 2 is missing: there is no '"),
            std::string::npos);
  coco.folder.write("train2017/a.png", test::png(coco.wide));
  EXPECT_NE(refusal(coco, coco.config()).find("a.png' is 8 x 4 pixels, but image 2 of the annotations is 4 x 8"),
            std::string::npos);
  coco.folder.write("train2017/a.png", test::png(coco.tall));
  const std::string box = R"({"id": 1, "image_id": 2, "category_id": 7, "bbox": [1, 2, 2, 4]})";
  coco.folder.write("annotations/instances_train2017.json", coco_text(box + "," + box + "," + box));
  EXPECT_NE(refusal(coco, coco.config()).find("a.png' has 3 boxes, and a sample at most data.boxes = 2"),
            std::string::npos);
  coco.folder.write("annotations/instances_val2017.json",
                    R"({"images": [], "annotations": [], "categories": [{"id": 1, "name": "dog"}]})");
  coco.folder.write("annotations/instances_train2017.json", coco_text(box));
  EXPECT_NE(refusal(coco, coco.config(), Split::validation).find("has other categories than the training part"),
            std::string::npos);
  coco.folder.write("annotations/instances_train2014.json", "{}");
  EXPECT_NE(refusal(coco, coco.config()).find("both are annotations of the part \"train\""), std::string::npos);
  CocoFolder empty;
  std::filesystem::remove_all(empty.folder / "annotations");
  EXPECT_NE(refusal(empty, empty.config()).find("has neither annotations/instances_train*.json nor"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
