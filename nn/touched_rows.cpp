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
  const int64_t rows = rows_.numel(), fresh = std::ssize(fresh_);
  if (absent()) {
    there_.assign(static_cast<size_t>(rows), 0);
    std::fill(there_.end() - fresh, there_.end(), char{1});
    if (fresh == 0) return;
    Tensor place = values_.slice(0, rows - fresh, rows);
    copy(initial_of(fresh_, table.dim(1)).to(table.device()), place);
    return;
  }
  Tensor place = values_.slice(0, 0, rows);
  copy(read(table), place);
}

Tensor TouchedRows::initial_of(std::span<const int64_t> ids, int64_t channels) const {
  Tensor initial = Tensor::empty({std::ssize(ids), channels});
  growth_.initialise(ids, initial);
  return initial;
}

std::pair<int64_t, int64_t> TouchedRows::places_in(int64_t first, int64_t count) const {
  const auto rows = rows_.span<int64_t>();
  const auto place = [&](int64_t row) { return std::lower_bound(rows.begin(), rows.end(), row) - rows.begin(); };
  return {place(first), place(first + count)};
}

Tensor TouchedRows::rows_in(int64_t first, int64_t count) const {
  const auto [begin, end] = places_in(first, count);
  std::vector<int64_t> rows(rows_.data<int64_t>() + begin, rows_.data<int64_t>() + end);
  for (int64_t& row : rows) row -= first;
  return Tensor::from(rows, {std::ssize(rows)});
}

// New ids have the last places.
Tensor TouchedRows::read(const Tensor& part, int64_t first) const {
  Tensor values = embedding(part, rows_in(first, part.dim(0)));
  const auto [begin, end] = places_in(first, part.dim(0));
  const int64_t known = rows_.numel() - std::ssize(fresh_), fresh = std::max(begin, known);
  if (fresh >= end) return values;
  const std::span<const int64_t> ids =
      std::span(fresh_).subspan(static_cast<size_t>(fresh - known), static_cast<size_t>(end - fresh));
  Tensor place = values.slice(0, fresh - begin, end - begin);
  copy(initial_of(ids, part.dim(1)).to(part.device()), place);
  return values;
}

Tensor TouchedRows::places(const Tensor& ids) {
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
  if (absent()) fetch_places(places.span<int64_t>());
  return places;
}

// Fetches the rows of those places that values() lacks.
void TouchedRows::fetch_places(std::span<const int64_t> places) {
  std::vector<int64_t> missing;
  for (const int64_t place : places)
    if (place != kNoId && there_[static_cast<size_t>(place)] == 0) missing.push_back(place);
  if (missing.empty()) return;
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<int64_t> rows;
  for (const int64_t place : missing) rows.push_back(rows_.data<int64_t>()[place]);
  put_rows(fetch_(rows).to(values_.device()), Tensor::from(missing, {std::ssize(missing)}), values_);
  for (const int64_t place : missing) there_[static_cast<size_t>(place)] = 1;
}

void TouchedRows::commit() {
  if (!fresh_.empty()) assignment_->append(fresh_);
  fresh_.clear();
  bound_ = false;
  updated_ = std::exchange(updates_all_, false) ? Tensor() : rows_;
}

// Returns the rows (index' shape.., channels) of a table, which may be absent.
Tensor TouchedRows::rows_at(const Tensor& table, const Tensor& index) const {
  if (!absent()) return embedding(table, index);
  const auto all = index.span<int64_t>();
  std::vector<int64_t> rows(all.begin(), all.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  Tensor at = Tensor::empty(index.shape(), DType::i64);
  for (size_t i = 0; i < all.size(); ++i)
    at.data<int64_t>()[i] = std::lower_bound(rows.begin(), rows.end(), all[i]) - rows.begin();
  return embedding(fetch_(rows).to(table.device()), at);
}

Tensor TouchedRows::lookup(const Tensor& table, const Tensor& ids) {
  if (assignment_ && assignment_->refresh()) bound_ = false;
  Tensor rows = Tensor::zeros(ids.shape(), DType::i64);
  std::vector<int64_t> without, at;  // ids without a row, and their positions
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    if (id == kNoId) continue;
    if (const auto row = assignment_ ? assignment_->row_of(id) : id) {
      rows.data<int64_t>()[i] = *row;
    } else {
      without.push_back(id);
      at.push_back(i);
    }
  }
  Tensor values = rows_at(table, rows);
  if (without.empty()) return values;
  const Tensor initial = initial_of(without, table.dim(1));
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

void commit_touched(Parameters& parameters) {
  for (Parameter& p : parameters.list)
    if (p.sparse()) {
      p.touched->bind(p.var.value());
      p.touched->commit();
    }
}

}  // namespace elinvar
