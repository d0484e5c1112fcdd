#include "nn/touched_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nn/network.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/embedding_bag.h"

namespace elinvar {

void TouchedRows::grow(TableGrowth growth) {
  growth_ = std::move(growth);
  assignment_ = std::make_unique<RowAssignment>(growth_.ids);
}

void TouchedRows::make_sparse(Var& table, int64_t samples) {
  capacity_ = grows() ? samples * lookups_ : std::min(table.dim(0), samples * lookups_);
  table.set_grad_shape({capacity_, table.dim(1)});
}

void TouchedRows::touch(const Inputs& batch) {
  const Tensor picked = ids_of_(batch);
  const auto span = picked.span<int64_t>();
  touched_.assign(span.begin(), span.end());
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  if (!touched_.empty() && touched_.front() == kNoId) touched_.erase(touched_.begin());
  check(std::ssize(touched_) <= capacity_, "[touch] a batch looks up {} rows of a table whose gradient has {}",
        touched_.size(), capacity_);
  bound_ = false;
}

void TouchedRows::bind(const Tensor& table) {
  const bool changed = assignment_ && assignment_->refresh();
  if (bound_ && !changed) return;
  fresh_.clear();
  std::vector<int64_t> rows = touched_;
  places_.resize(touched_.size());
  std::iota(places_.begin(), places_.end(), 0);
  if (assignment_) {
    std::vector<std::pair<int64_t, size_t>> known;  // rows, and which touched ids have them
    std::vector<size_t> others;
    for (size_t i = 0; i < touched_.size(); ++i)
      if (const auto row = assignment_->row_of(touched_[i])) known.emplace_back(*row, i);
      else others.push_back(i);
    const int64_t used = assignment_->used(), needed = used + std::ssize(others);
    if (needed > table.dim(0))
      fail("a batch has {} new categories, but {} of the table's {} rows are taken; the table needs more (model.rows)",
           others.size(), used, table.dim(0));
    std::sort(known.begin(), known.end());
    rows.clear();
    const auto put = [&](int64_t row, size_t i) {
      places_[i] = std::ssize(rows);
      rows.push_back(row);
    };
    for (const auto& [row, i] : known) put(row, i);
    for (const size_t i : others) {
      put(used + std::ssize(fresh_), i);
      fresh_.push_back(touched_[i]);
    }
  }
  rows_ = Tensor::from(rows, {std::ssize(rows)});
  bound_ = true;
}

void TouchedRows::load(const Tensor& table) {
  bind(table);
  if (!values_.defined()) values_ = Tensor::zeros({capacity_, table.dim(1)}, table.dtype(), table.device());
  Tensor place = values_.slice(0, 0, rows_.numel());
  copy(read(table), place);
}

Tensor TouchedRows::read(const Tensor& table) const {
  Tensor values = embedding(table, rows_);
  if (fresh_.empty()) return values;
  Tensor initial = Tensor::empty({std::ssize(fresh_), table.dim(1)});
  growth_.initialise(fresh_, initial);
  Tensor place = values.slice(0, values.dim(0) - initial.dim(0), values.dim(0));
  copy(initial.to(table.device()), place);
  return values;
}

Tensor TouchedRows::places(const Tensor& ids) const {
  Tensor places = Tensor::empty(ids.shape(), DType::i64);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    if (id == kNoId) {
      places.data<int64_t>()[i] = kNoId;
      continue;
    }
    const auto found = std::lower_bound(touched_.begin(), touched_.end(), id);
    check(bound_ && found != touched_.end() && *found == id,
          "[embedding] row {} of a sparse table is not among the {} rows that the step touches", id, touched_.size());
    places.data<int64_t>()[i] = places_[static_cast<size_t>(found - touched_.begin())];
  }
  return places;
}

void TouchedRows::commit() {
  if (!fresh_.empty()) assignment_->append(fresh_);
  fresh_.clear();
  bound_ = false;
}

Tensor TouchedRows::lookup(const Tensor& table, const Tensor& ids) {
  if (!assignment_) return embedding(table, ids);
  if (assignment_->refresh()) bound_ = false;
  Tensor rows = Tensor::zeros(ids.shape(), DType::i64);
  std::vector<int64_t> absent, at;  // ids without a row, and their positions
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    if (id == kNoId) continue;
    if (const auto row = assignment_->row_of(id)) {
      rows.data<int64_t>()[i] = *row;
    } else {
      absent.push_back(id);
      at.push_back(i);
    }
  }
  Tensor values = embedding(table, rows);
  if (absent.empty()) return values;
  Tensor initial = Tensor::empty({std::ssize(absent), table.dim(1)});
  growth_.initialise(absent, initial);
  Tensor all = values.reshape({ids.numel(), table.dim(1)});
  put_rows(initial.to(table.device()), Tensor::from(at, {std::ssize(at)}), all);
  return all.reshape(values.shape());
}

void make_sparse(Parameters& parameters, std::span<const std::string> patterns, int64_t samples) {
  std::vector<std::string> tables;
  for (const Parameter& p : parameters.list)
    if (p.touched) tables.push_back(p.name);
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (Parameter& p : parameters.list) {
      if (!name_matches(pattern, p.whole_name())) continue;
      check_setting(p.touched != nullptr, "optimizer.sparse",
                    "matches '{}' with '{}', which is not a table that is read by index alone", p.whole_name(),
                    pattern);
      p.touched->make_sparse(p.var, samples);
      found = true;
    }
    check_setting(found, "optimizer.sparse", "names '{}', which no table is called{}", pattern,
                  spelling_hint(pattern, tables));
  }
  for (const Parameter& p : parameters.list)
    check_setting(!p.touched || !p.touched->grows() || p.sparse(), "optimizer.sparse",
                  "lacks '{}', whose rows are given to categories as they come", p.name);
}

bool any_sparse(const Parameters& parameters) {
  return std::ranges::any_of(parameters.list, [](const Parameter& p) { return p.sparse(); });
}

bool any_grows(const Parameters& parameters) {
  return std::ranges::any_of(parameters.list, [](const Parameter& p) { return p.touched && p.touched->grows(); });
}

void touch(Parameters& parameters, const Inputs& batch) {
  for (Parameter& p : parameters.list)
    if (p.sparse()) p.touched->touch(batch);
}

void read_touched(Parameters& parameters) {
  for (Parameter& p : parameters.list)
    if (p.sparse()) p.touched->load(p.var.value());
}

}  // namespace elinvar
