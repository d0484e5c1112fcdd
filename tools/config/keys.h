#pragma once
// The keys of each table of a configuration: visit(v, table) calls v(key, value, bounds) for each of them. Settings
// that only the tools know are checked here; settings of data, optimiser and schedule are checked where they are used.
#include "data/dataset.h"
#include "tools/config/config.h"
#include "tools/config/table.h"

namespace elinvar {

template <class V>
void visit(V& v, RunConfig& c) {
  v("name", c.name);
  v("seed", c.seed);
  v("steps", c.steps, Between{0, kMostSteps});
  v("epochs", c.epochs, Between{0, kMostSteps});
  v("batch_size", c.batch_size, Between{1, kMostSamples});
  v("virtual_ranks", c.virtual_ranks, Between{1, 65536});
  v("numerics", c.numerics, OneOf{{"portable", "exact", "fast"}});
  v("precision", c.precision, OneOf{{"bf16", "tf32"}});
  v("scaling", c.scaling, OneOf{{"exact", "adaptive"}});
  v("grow_every", c.grow_every, Between{0, kMostSteps});
  v("grow_factor", c.grow_factor, Between{2, 1024});
  v("batch_max", c.batch_max, Between{0, kMostSamples});
  v("ramp_steps", c.ramp_steps, Between{0, kMostSteps});
  v("state_digest_every", c.state_digest_every, Between{0, kMostSteps});
  v("checkpoint_every", c.checkpoint_every, Between{0, kMostSteps});
  v("keep", c.keep, Between{1, 1000000});
  v("recompute", c.recompute);
  v("cuda_graphs", c.cuda_graphs);
  v("audit_every", c.audit_every, Between{0, kMostSteps});
  v("eval_every", c.eval_every, Between{0, kMostSteps});
  v("log_every", c.log_every, Between{1, kMostSteps});
  v("data_plane", c.data_plane, OneOf{{"auto", "host", "nccl"}});
  v("group_timeout", c.group_timeout, Between{0.1, 86400});
}

template <class V>
void visit(V& v, DataConfig& c) {
  v("kind", c.kind);
  if (!is_built_in_dataset(c.kind)) return;  // the other keys are in c.own
  v("path", c.path);
  v("validation_fraction", c.validation_fraction);
  v("image_size", c.image_size);
  v("resize", c.resize);
  v("crop_padding", c.crop_padding);
  v("padding_mode", c.padding_mode);
  v("flip", c.flip);
  v("alternate_flip", c.alternate_flip);
  v("cutout", c.cutout);
  v("random_resized_crop", c.random_resized_crop);
  v("crop_area_min", c.crop_area_min);
  v("brightness", c.brightness);
  v("contrast", c.contrast);
  v("saturation", c.saturation);
  v("hue", c.hue);
  v("mean", c.mean);
  v("std", c.std);
  v("cache_mb", c.cache_mb);
  v("cache_dir", c.cache_dir);
  v("broken", c.broken);
  v("index_dir", c.index_dir);
  v("label_field", c.label_field);
  v("tokens", c.tokens);
  v("tokenizer", c.tokenizer);
  v("special_tokens", c.special_tokens);
  v("masking", c.masking);
  v("targets_as_input", c.targets_as_input);
  v("context", c.context);
  v("include", c.include);
  v("exclude", c.exclude);
  if (c.kind == "coco" || c.kind == "synthetic_boxes") v("boxes", c.boxes);
  const bool rows_of_texts = c.kind == "labelled_text" || c.kind == "text_pairs";
  if (rows_of_texts) v("text", c.text);
  if (rows_of_texts || c.kind == "table") v("target", c.target);
  if (c.kind == "text_pairs" || c.kind == "synthetic_pairs") v("target_context", c.target_context);
  if (c.kind == "table") {
    v("labels", c.labels);
    v("numbers", c.numbers);
    v("categories", c.categories);
    v("scale", c.scale);
    v("buckets", c.buckets);
    v("separator", c.separator);
  }
  if (c.kind == "table" || c.kind == "synthetic_table") v("most_ids", c.most_ids);
  if (c.kind == "ratings") {
    v("rating_min", c.rating_min);
    v("negatives", c.negatives);
    v("candidates", c.candidates);
  }
  v("size", c.size);
  v("classes", c.classes);
  v("channels", c.channels);
  v("noise", c.noise);
  v("data_seed", c.data_seed);
  if (c.kind == "synthetic_table") {
    v("features", c.features);
    v("symbols", c.symbols);
  }
}

template <class V>
void visit(V& v, ReaderConfig& c) {
  v("shuffle", c.shuffle);
  v("augment_epochs", c.augment_epochs, Between{0, kMostSteps});
  v("mixup", c.mixing.mixup);
  v("cutmix", c.mixing.cutmix);
  v("threads", c.threads, Between{0, 1024});
  v("prefetch", c.prefetch, Between{0, 4096});
}

template <class V>
void visit(V& v, CrossEntropyOptions& c) {
  v("label_smoothing", c.label_smoothing, Between{0, 1});
  v("ignore_index", c.ignore_index);
}

template <class V>
void visit(V& v, OptimizerConfig& c) {
  v("kind", c.kind);
  v("lr", c.lr);
  const bool built_in = is_built_in_optimizer(c.kind);  // otherwise c.own has the other keys
  if (built_in) {
    v("momentum", c.momentum);
    v("nesterov", c.nesterov);
    v("beta1", c.beta1);
    v("beta2", c.beta2);
    v("eps", c.eps);
    v("weight_decay", c.weight_decay);
  }
  v("exempt", c.exempt);
  if (built_in) {
    v("trust", c.trust);
    v("sparse", c.sparse);
    v("sparse_kind", c.sparse_kind);
    v("sparse_lr", c.sparse_lr);
  }
  v("clip_norm", c.clip_norm);
  v("ema_decay", c.ema_decay);
}

template <class V>
void visit(V& v, ScheduleConfig& c) {
  v("kind", c.kind);
  v("warmup_steps", c.warmup_steps);
  v("min_ratio", c.min_ratio);
  v("milestones", c.milestones);
  v("every", c.every);
  v("gamma", c.gamma);
  v("rise", c.rise);
  v("initial_ratio", c.initial_ratio);
}

template <class V>
void visit(V& v, LedgerConfig& c) {
  v("leaves", c.leaves, OneOf{{"none", "sample", "all"}});
  v("tensors_every", c.tensors_every, Between{0, kMostSteps});
}

template <class V>
void visit(V& v, TensorBoardConfig& c) {
  v("scalars", c.scalars);
  v("histograms_every", c.histograms_every, Between{0, kMostSteps});
  v("images_every", c.images_every, Between{0, kMostSteps});
  v("images", c.images, Between{1, 64});
  v("text_every", c.text_every, Between{0, kMostSteps});
  v("prompt", c.prompt);
  v("text_tokens", c.text_tokens, Between{1, 4096});
}

}  // namespace elinvar
