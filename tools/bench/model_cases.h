#pragma once
// The networks that `bench` trains, each with the size of its data and of its batch. tools/peers/torch_steps.py has the
// same cases for PyTorch.
#include <map>
#include <string>
#include <vector>

#include "tensor/base/spec.h"
#include "tensor/shape.h"

namespace elinvar::bench {

// What a sample is, and what the network must predict from it.
enum class CaseData {
  images,         // float32 (H, W, C); a class
  boxes,          // the same; boxes
  masks,          // the same; a class for each pixel
  text,           // tokens (T); the next tokens
  masked_text,    // tokens (T); some of them, 15 %
  replaced_text,  // the same, whose targets are also an input, for the task "replaced_tokens"
  labelled_text,  // tokens (T) and how many of them count, from T / 2 to T; one of two classes
  text_pairs,     // tokens (T) of a source, as many of a target, and the source's length as above; the target's tokens
  table,          // numbers (F) and categories (K); a probability
  ratings         // candidates (C, 2), a user and an item each; which of them the user chose
};

struct ModelCase {
  std::string name;
  Spec spec;
  Shape sample;
  int64_t classes, batch;    // classes: of text the vocabulary
  double forward_gflop = 0;  // per sample, a multiply-add counts two; 0: from the transformer's sizes below
  int64_t layers = 0, channels = 0;
  int64_t experts_per_token = 1;  // perceptrons of a block that a token meets
  CaseData data = CaseData::images;
  std::vector<int64_t> symbols = {};  // of each column of categories
  Spec task = {};

  bool is_text() const { return data >= CaseData::text && data <= CaseData::text_pairs; }
  bool is_transformer() const { return layers > 0; }
};

Spec spec_of(const std::string& kind, std::map<std::string, Setting> settings = {});
// A GPT for sequences of `length` tokens.
ModelCase gpt_case(const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t length,
                   int64_t classes, int64_t batch);

std::vector<std::string> model_names();
std::vector<std::string> shardable_model_names();  // the cases that have virtual shards
std::vector<std::string> job_model_names();        // the cases for whose data a configuration needs no more than text
const ModelCase& model_case(const std::string& name);

}  // namespace elinvar::bench
