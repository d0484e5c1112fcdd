// `train predict`: classes of image files, and the loss and next tokens of a text.
#include <algorithm>
#include <set>

#include "data/class_image.h"
#include "tensor/base/file.h"
#include "tests/data/image_writer.h"
#include "tests/jobs/train_command.h"
#include "tests/support/lines.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

// Trains on dark and light images in folders, which two epochs tell apart.
class Predict : public TrainCommand {
 protected:
  void SetUp() override {
    TrainCommand::SetUp();
    for (const std::string split : {"train", "val"})
      for (int i = 0; i < 12; ++i)
        for (const bool light : {false, true})
          picture(fmt::format("set/{}/{}/{:02}.png", split, name(light), i), light, i);
    std::string config = kTrainImages;
    const std::string synthetic = "kind = \"synthetic\"\nsize = 50\nclasses = 3\nimage_size = 8\n";
    const size_t at = config.find(synthetic);
    config.replace(at, synthetic.size(),
                   fmt::format("kind = \"image_folder\"\npath = \"{}\"\nimage_size = 8\nresize = 9\n",
                               (folder_ / "set").string()));
    folder_.write("pictures.toml", config);
  }
  static std::string name(bool light) { return light ? "light, bright" : "dark"; }
  fs::path picture(const std::string& path, bool light, int key) {
    Image image = random_image(11 + key % 5, 10 + key % 3, 3, static_cast<uint64_t>(2 * key + light));
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel / 2 + (light ? 128 : 0));
    return folder_.write(path, png(image));
  }
  Ended predict(const std::string& directory, std::vector<std::string> more) const {
    more.insert(more.begin(), {"predict", folder_ / directory});
    return train(more);
  }
};

// A U-Net that learned that light pixels are of class 1 finds them, and its masks have the sizes of their images.
TEST_F(Predict, FindsTheClassesOfPixels) {
  for (const std::string part : {"train", "val"})
    for (int i = 0; i < 8; ++i) {
      Image image(20, 30, 3), mask(20, 30, 1);
      for (size_t at = 0; at < mask.pixels.size(); ++at) {
        mask.pixels[at] = at % 30 >= static_cast<size_t>(12 + i);
        std::fill_n(image.pixels.data() + 3 * at, 3, static_cast<uint8_t>(mask.pixels[at] ? 220 : 30));
      }
      folder_.write(fmt::format("pixels/{}/images/{}.png", part, i), png(image));
      folder_.write(fmt::format("pixels/{}/masks/{}.png", part, i), png(mask));
    }
  folder_.write("pixels.toml",
                fmt::format("[run]\nsteps = 12\nbatch_size = 8\n[model]\nkind = \"unet\"\nchannels = 4\n[task]\nkind = "
                            "\"segmentation\"\n[data]\nkind = \"image_masks\"\npath = \"{}\"\nimage_size = 16\n"
                            "classes = 2\n[optimizer]\nkind = \"adam\"\nlr = 0.01\n",
                            (folder_ / "pixels").string()));
  const Ended trained = run("pixels.toml", "run");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find(" iou="), std::string::npos) << trained.out;
  const std::string masks = folder_ / "found", path = folder_ / "pixels/val/images";
  const Ended found = predict("run", {path, "--masks", masks});
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(lines_of(found.out).size(), 8u);
  const Image mask = decode_classes(read_file(masks + "/3.png"), "3.png");
  ASSERT_EQ(mask.height, 20);
  ASSERT_EQ(mask.width, 30);
  int right = 0;
  for (size_t at = 0; at < mask.pixels.size(); ++at) {
    const size_t x = at % 30;
    // The sample shows columns 5 to 24, scaled by 4/5.
    if (x < 5 || x >= 25) EXPECT_EQ(mask.pixels[at], 255) << at;
    else right += mask.pixels[at] == (x >= 15);
  }
  EXPECT_GT(right, 380) << "of 400";
  EXPECT_NE(predict("run", {path, folder_ / "pixels/train/images", "--masks", masks}).err.find("the same mask"),
            std::string::npos);
  const std::string first = read_file(path + "/0.png");
  EXPECT_NE(predict("run", {path, "--masks", path}).err.find("would replace the image"), std::string::npos);
  EXPECT_EQ(read_file(path + "/0.png"), first);
  EXPECT_NE(predict("run", {"--text", "-", "--masks", masks}).err.find("a text has no pixels"), std::string::npos);
}

// Boxes lie within their image, the likeliest first, and are the same in every form.
TEST_F(Predict, FindsBoxes) {
  const Image image = random_image(20, 30, 3, 1);
  for (const std::string part : {"train", "val"}) {
    folder_.write("boxes/" + part + "/a.png", png(image));
    folder_.write("boxes/" + part + "/_annotations.coco.json",
                  R"({"images": [{"id": 1, "file_name": "a.png", "width": 30, "height": 20}],
                      "categories": [{"id": 4, "name": "dark"}, {"id": 9, "name": "light, bright"}],
                      "annotations": [{"id": 1, "image_id": 1, "category_id": 9, "bbox": [3, 4, 10, 12]}]})");
  }
  folder_.write("boxes.toml",
                fmt::format("[run]\nsteps = 2\nbatch_size = 1\n[model]\nkind = \"yolov3_tiny\"\nchannels = "
                            "1\n[task]\nkind = \"detection\"\nscore_threshold = 0.0\nanchors = [4, 4, 8, "
                            "4, 4, 8, 16, 16, 24, 12, 12, 24]\n[data]\nkind = \"coco\"\npath = \"{}\"\n"
                            "image_size = 32\nboxes = 2\n",
                            (folder_ / "boxes").string()));
  const Ended trained = run("boxes.toml", "run");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find(" map50="), std::string::npos) << trained.out;
  const std::string path = folder_ / "boxes/val/a.png";
  const Ended json = predict("run", {path, "--json", "--top", "3"}), table = predict("run", {path, "--top", "3"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto boxes = nlohmann::json::parse(json.out)["boxes"];
  ASSERT_EQ(boxes.size(), 3u);
  double before = 1;
  for (const auto& box : boxes) {
    const std::vector<double> b = box["bbox"];
    EXPECT_TRUE(b[0] >= 0 && b[1] >= 0 && b[0] + b[2] <= 30 && b[1] + b[3] <= 20) << box;
    EXPECT_LE(box["score"].get<double>(), before);
    before = box["score"].get<double>();
  }
  const std::vector<std::string> lines = lines_of(table.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find("  " + boxes[0]["name"].get<std::string>()), std::string::npos) << lines[0];
  const Ended csv = predict("run", {path, "--top", "1", "--csv", folder_ / "boxes.csv"});
  ASSERT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(read_file(folder_ / "boxes.csv").find("image,rank,class,score,left,top,width,height\n"), 0u);
}

TEST_F(Predict, ClassifiesImagesWithoutTheDataSet) {
  const Ended trained = run("pictures.toml", "run");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ended score = train({"eval", folder_ / "run", "--json"});
  ASSERT_EQ(score.code, 0) << score.err;
  fs::rename(folder_ / "set", folder_ / "elsewhere");

  const Ended table = predict("run", {folder_ / "elsewhere/val"});
  ASSERT_EQ(table.code, 0) << table.err;
  const std::vector<std::string> lines = lines_of(table.out);
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[0].find((folder_ / "elsewhere/val/dark/00.png").string()), 0u);
  // The likeliest class is right as often as eval counts.
  int right = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t own = lines[i].find("  " + name(i >= 12)), other = lines[i].find("  " + name(i < 12));
    ASSERT_NE(own, std::string::npos);
    right += own < other;
  }
  EXPECT_DOUBLE_EQ(right / 24.0, nlohmann::json::parse(score.out)["accuracy"].get<double>());

  // Images alone, in another order, on other threads and with other instructions: the same lines.
  const std::string last = folder_ / "elsewhere/val/light, bright/11.png",
                    first = folder_ / "elsewhere/val/dark/00.png";
  const Ended json = predict("run", {last, first, "--json", "--isa", "scalar", "--threads", "3"});
  const Ended all = predict("run", {folder_ / "elsewhere/val", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const std::vector<std::string> some = lines_of(json.out), whole = lines_of(all.out);
  EXPECT_EQ(some, (std::vector<std::string>{whole[23], whole[0]}));
  const auto parsed = nlohmann::json::parse(some[0]);
  EXPECT_EQ(parsed["image"], last);
  ASSERT_EQ(parsed["classes"].size(), 2u);
  const auto probability = [&](int rank) { return parsed["classes"][rank]["probability"].get<double>(); };
  EXPECT_NEAR(probability(0) + probability(1), 1, 1e-6);  // each is rounded to float32

  const Ended csv = predict("run", {first, "--top", "1", "--csv", folder_ / "classes.csv"});
  ASSERT_EQ(csv.code, 0) << csv.err;
  const std::vector<std::string> rows = lines_of(read_file(folder_ / "classes.csv"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], "image,rank,class,probability");
  EXPECT_EQ(rows[1].find(first + ",1,"), 0u);
}

TEST_F(Predict, UnreadableImagesAreNamedAndCounted) {
  ASSERT_EQ(run("pictures.toml", "run").code, 0);
  const std::string good = picture("more/b.png", true, 1);
  folder_.write("more/a.png", read_file(good).substr(0, 60));
  folder_.write("more/c.png", "");
  const Ended mixed = predict("run", {folder_ / "more"});
  EXPECT_EQ(mixed.code, 3);
  EXPECT_EQ(lines_of(mixed.out).size(), 1u) << mixed.out;
  EXPECT_EQ(mixed.out.find(good), 0u);
  EXPECT_NE(mixed.err.find("a.png' is damaged or truncated"), std::string::npos) << mixed.err;
  EXPECT_NE(mixed.err.find("train: 2 of 3 images could not be read"), std::string::npos) << mixed.err;

  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    const Ended ended = predict("run", more);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(message), std::string::npos) << ended.err;
  };
  refused({}, "expected images (files, folders or .tar archives) or --text FILE");
  refused({good, "--text", "-"}, "and not both");
  refused({good, folder_ / "absent.png"}, "there is no ");
  refused({"--text", good}, "has no network that goes on with a text");
  refused({good, "--top", "0"}, "--top");

  // Runs of older versions keep no form of their samples: the data are opened.
  fs::remove(folder_ / "run/samples.json");
  EXPECT_EQ(predict("run", {good}).out, mixed.out);
  folder_.write("run/samples.json", "{\"classes\":2}");
  const Ended damaged = predict("run", {good});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_NE(damaged.err.find("samples.json is damaged"), std::string::npos) << damaged.err;
}

TEST_F(Predict, TellsTheLossOfATextAndWhatMayFollow) {
  ASSERT_EQ(run("text.toml", "run").code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "run/samples.json"));
  std::string sums;
  for (int i = 10; i < 40; ++i) sums += fmt::format("{}+{}={}\n", i, i + 1, 2 * i + 1);
  const fs::path text = folder_.write("sums.txt", sums);
  const Ended told = predict("run", {"--text", text, "--top", "3"});
  ASSERT_EQ(told.code, 0) << told.err;
  const std::vector<std::string> lines = lines_of(told.out);
  ASSERT_EQ(lines.size(), 5u) << told.out;
  EXPECT_EQ(lines[0].find("step=8 tokens=" + std::to_string(sums.size() - 1) + " loss="), 0u) << lines[0];
  EXPECT_EQ(lines[1], "next:");
  EXPECT_EQ(predict("run", {"--text", text, "--top", "3", "--isa", "scalar", "--threads", "3"}).out, told.out);

  const Ended json = predict("run", {"--text", text, "--json"});
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["next"].size(), 5u);
  EXPECT_GT(parsed["loss"].get<double>(), 0);
  EXPECT_EQ(parsed["perplexity"].get<double>(), std::exp(parsed["loss"].get<double>()));
  // The likeliest token is the one that greedy sampling draws.
  const Ended greedy = train({"sample", folder_ / "run", "--prompt", sums.substr(0, sums.size() - 1), "--tokens", "1",
                              "--temperature", "0", "--json"});
  EXPECT_EQ(nlohmann::json::parse(greedy.out)["tokens"][0], parsed["next"][0]["token"]);

  folder_.write("empty.txt", "\n");
  EXPECT_EQ(predict("run", {"--text", folder_ / "empty.txt"}).code, 2);
  EXPECT_EQ(predict("run", {"--text", folder_ / "absent.txt"}).code, 2);
  EXPECT_EQ(predict("run", {text}).code, 2);
}

}  // namespace
}  // namespace elinvar::test
