#pragma once
// A dataset is one split of a data set. Its samples are pure functions of (index, draw); it has no position and no
// random generator, so any number of threads and processes may read it in any order.
//
//   DataConfig config{.kind = "cifar10", .path = "cifar-10-batches-bin", .crop_padding = 4, .flip = true};
//   std::unique_ptr<Dataset> train = open_dataset(config, Split::train);
//
// Kinds, and what `path` means for them:
//   cifar10         a folder with data_batch_*.bin and test_batch.bin, or images as for image_folder
//   mnist           a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., plain or .gz
//                   (any set in this format: Fashion-MNIST, KMNIST)
//   image_folder    a folder or .tar of <split>/<class>/<name>.jpg|jpeg|png, or of <class>/<name>; classes are numbered
//                   in the order of their sorted names
//   webdataset      .tar shards (data/shards.h: a folder, a pattern, a file) of samples with an image and a label
//                   (data/shard_index.h); shards with "val" or "test" in their name, below the folder that all share,
//                   are for validation or test; the largest label in training gives the number of classes
//   synthetic       no path: classes are smooth random patterns; samples are shifted, dimmed and noisy
//   text            a file, or a folder whose files are concatenated in the order of their sorted names
//   tokens          a file of tokens (data/token_file.h), or a folder of *.bin files, concatenated in the order of
//                   their sorted names; those with "val" in the name, if any, are the second part
//   labelled_text   a .csv, .tsv or .jsonl file with a text and a label in each row, or a folder of such files
//                   (data/labelled_text.cpp), divided into splits as tables are
//   text_pairs      the same, of texts and the texts that belong to them (data/text_pairs.h)
//   coco            a folder or .tar with COCO's annotations of boxes and their images (data/coco_images.cpp)
//   image_masks     a folder or .tar of images/<name>.jpg and masks/<name>.png, which has a class for each pixel
//                   (data/mask_images.cpp)
//   synthetic_boxes no path: images of shapes, with a box for each
//   synthetic_masks no path: images of rectangles and discs, with a class for each pixel
//   synthetic_text  no path: lines of sums, "17+25=42"
//   table           a .csv, .tsv or .jsonl file, or a folder of them, of numbers and categories (data/table.cpp); files
//                   with "val" or "test" in their names, if any, are for validation or test
//   ratings         a file of MovieLens, or the folder with it: which items users chose (data/ratings.h)
//   synthetic_pairs no path: letters in a random order, and sorted
//   synthetic_table no path: rows whose best possible loss is known (data/table.h)
//
// Splits. `validation` is the set's own second part while validation_fraction is 0. Otherwise, or if the set has none,
// it is a fraction held out of the training part: images by a fixed permutation that no seed changes, text and tokens
// from their end. `test` is the set's own second part; text, and many sets in one file, have none.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/vocabulary.h"
#include "tensor/base/spec.h"
#include "tensor/digest.h"
#include "tensor/tensor.h"

namespace elinvar {

inline constexpr int64_t kMostSynthetic = int64_t{1} << 24;  // samples, lines

struct DataConfig {
  std::string kind = {};
  std::string path = {};
  double validation_fraction = 0;  // in [0, 1); 0: the set's own second part, or 0.1 if it has none

  // Images
  int64_t image_size = 0;              // side of the square that the network sees; 0: as stored (all must be equal)
  int64_t resize = 0;                  // shorter side before cropping; 0: image_size
  int64_t crop_padding = 0;            // training: width in pixels of the border that crops may include
  std::string padding_mode = "black";  // the border: "black", or "reflect", the mirrored image
  bool flip = false;                   // training: mirrors left and right with probability 1/2
  bool alternate_flip = false;         // flip: drawn once for a sample, and inverted in odd epochs
  int64_t cutout = 0;                  // training: side of a square that is erased; 0: none
  bool random_resized_crop = false;    // training: a random part of random area and aspect, scaled to image_size
  double crop_area_min = 0.08;         // its least share of the image's area
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;  // training: colour jitter (data/color_jitter.h)
  std::vector<double> mean = {}, std = {};  // per channel, for pixels in [0, 1]; empty: the usual ones of the kind
  int64_t cache_mb = 1024;                  // MiB; decoded images are kept in memory if they fit
  std::string cache_dir = {};               // image files: a folder in which decoded images are kept; empty: none
  std::string broken = "error";             // image files: a broken one is an error; "skip": the next one replaces it
  std::string index_dir = {};               // webdataset: a folder for indices; empty: next to the shards
  std::string label_field = {};             // webdataset: the label's field in a .json; empty: the label is in a .cls

  int64_t boxes = 100;  // images with boxes: most boxes of an image; targets have as many rows

  // Text
  std::string tokens = "byte";  // "byte": 256 symbols; "character": the code points that occur, sorted; "bpe"
  std::string tokenizer =
      {};              // bpe, and of kind tokens: its file (data/bpe.h); tokens: else tokenizer.json next to them
  double masking = 0;  // share of tokens that are masked, to be restored (data/masked_tokens.h); 0: none
  bool targets_as_input = false;  // with masking: the targets are a further input, int32
  bool special_tokens = false;    // bpe: encodes names of special tokens in the text as these tokens
  int64_t context = 256;          // T, tokens in a sample
  std::vector<std::string> include =
      {};  // which files of a folder, as "*.cpp" or "tensor/*.h" (* also matches /); empty: all
  std::vector<std::string> exclude = {};  // which files or folders not; names that begin with a dot are never read

  // Tables, and rows of texts
  std::string text = "text";                               // rows of texts: the field of the text
  int64_t target_context = 0;                              // pairs of texts: tokens of the target; 0: context
  std::vector<std::string> target = {};                    // the columns to be predicted
  bool labels = false;                                     // whether the target is the name of a class
  std::vector<std::string> numbers = {}, categories = {};  // columns that are inputs
  std::string scale = "standard";                          // of numbers: "standard", "log" or "none" (data/table.cpp)
  int64_t buckets = 0;                                     // numbers of categories by hashing; 0: by a list
  std::vector<int64_t> most_ids = {};                      // of each column of categories; empty: 1
  std::string separator = "|";                             // between the categories of a field, where it has several

  // Ratings
  double rating_min = 0;    // the lowest rating of an item that a user chose
  int64_t negatives = 4;    // training: items that the user never chose, for each choice
  int64_t candidates = 99;  // validation and test: the same

  // Synthetic
  int64_t size = 10000;  // training samples, or lines of text; validation samples are drawn separately
  int64_t classes = 10;
  int64_t channels = 3;
  double noise = 0.25;                                  // fraction of the pixel range
  int64_t data_seed = 0;                                // each number gives another set
  int64_t features = 8;                                 // tables: columns of numbers
  std::vector<int64_t> symbols = {100, 100, 100, 100};  // tables: the number of categories of each such column

  // The settings of a kind that a program registers. They replace all of the above except `kind`.
  Spec own = {};
};

enum class Split { train, validation, test };
const char* name_of(Split split);

// The facts besides its index on which a sample's randomness depends. Without `augment`, a sample depends on its index
// only.
struct Draw {
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool augment = false;
};

// A tensor of each sample.
struct Field {
  Shape shape;  // of one sample: an image (H, W, C), tokens (T), a label (), ...
  DType dtype = DType::f32;
  // The number of symbols at each position of int32 inputs (.., n) that are indices, or one number for all of them;
  // empty: classes().
  std::vector<int64_t> symbols = {};
  // If not empty, `symbols` are those of columns, of which each has so many positions side by side. Those of a column
  // of several hold up to so many indices, in any order and repeatedly, and -1 after the last one.
  std::vector<int64_t> most_ids = {};
};

struct SampleFormat {
  std::vector<Field> inputs;  // at least one; float32, or int32 for indices
  Field target;               // int64 for labels and tokens, or float32 for numbers
};

// The buffers to which a sample is written, one for each field of the format.
struct SampleBuffers {
  std::vector<void*> inputs;
  void* to_target;
  SampleBuffers(void* input, void* target) : inputs{input}, to_target(target) {}
  SampleBuffers(std::vector<void*> all, void* target) : inputs(std::move(all)), to_target(target) {}

  template <class T>
  T* input(size_t i = 0) const {
    return static_cast<T*>(inputs[i]);
  }
  template <class T>
  T* target() const {
    return static_cast<T*>(to_target);
  }
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;         // samples, the same in every epoch
  virtual SampleFormat format() const = 0;  // of all samples
  virtual int64_t classes() const = 0;      // labels, also of boxes, or symbols in the vocabulary; 0 for other numbers
  virtual const Vocabulary* vocabulary() const { return nullptr; }  // of text
  virtual const std::vector<std::string>& class_names() const;      // of images; may be empty
  // Returns the text of a tokenizer.json (Vocabulary::tokenizer_json) that makes the tokens of samples; "" if none
  // does.
  virtual std::string tokenizer_json() const;

  // Writes sample `index` in [0, size()). Thread-safe. Throws Failure, which names the file, if it cannot be read or is
  // corrupt.
  virtual void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const = 0;

  // Returns notices for the user since the last call: indices that were rebuilt, broken images that were skipped.
  virtual std::vector<std::string> take_notices() const { return {}; }

  // Hashes what identifies the data and how they are read: contents that are in memory, otherwise names and sizes, and
  // a sample of tokens.
  virtual void describe(Hasher& hasher) const = 0;

  // The shape and type of the first input, and the shape of the target.
  Shape input_shape() const { return format().inputs.at(0).shape; }
  DType input_dtype() const { return format().inputs.at(0).dtype; }
  Shape target_shape() const { return format().target.shape; }
};

// Throws SettingError (tensor/base/setting.h; keys are data.<member>) for an invalid configuration, UsageError for a
// split that does not exist, Failure for files that are missing or malformed. `resolved`, if not null, receives
// `config` with the defaults of a registered kind filled in.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split, DataConfig* resolved = nullptr);

// A kind of data set that a program adds to those above. `open` reads its settings (the caller calls their finish())
// and opens a split. Every process of a job must get the same samples from the same settings, as digest() checks.
struct DatasetKind {
  std::string name;
  std::function<std::unique_ptr<Dataset>(Settings&, Split)> open;
};
// Call it at the start of main(). Throws UsageError if the name is taken.
void register_dataset(DatasetKind kind);
bool is_built_in_dataset(std::string_view kind);

// Equal digests mean equal samples for every draw; for files that are not in memory, as far as describe() covers them.
Digest digest(const Dataset& dataset);

}  // namespace elinvar
