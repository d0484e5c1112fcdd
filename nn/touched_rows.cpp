#include "nn/touched_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nn/network.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {

TouchedRows::TouchedRows(int64_t rows, int64_t lookups, RowsOf rows_of)
    : all_(rows), lookups_(lookups), rows_of_(std::move(rows_of)) {}

void TouchedRows::make_sparse(int64_t samples) { capacity_ = std::min(all_, samples * lookups_); }

void TouchedRows::touch(const Inputs& batch) {
  const Tensor picked = rows_of_(batch);
  const auto span = picked.span<int64_t>();
  std::vector<int64_t> rows(span.begin(), span.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  check(std::ssize(rows) <= capacity_, "[touch] a batch looks up {} rows of a table whose gradient has {}", rows.size(),
        capacity_);
  rows_ = Tensor::from(rows, {std::ssize(rows)});
}

Tensor TouchedRows::places(const Tensor& rows) const {
  const auto touched = rows_.span<int64_t>(), wanted = rows.span<int64_t>();
  Tensor places = Tensor::empty(rows.shape(), DType::i64);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::lower_bound(touched.begin(), touched.end(), wanted[i]);
    check(found != touched.end() && *found == wanted[i],
          "[embedding] row {} of a sparse table is not among the {} rows that the step touches", wanted[i],
          touched.size());
    places.data<int64_t>()[i] = found - touched.begin();
  }
  return places;
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
      p.touched->make_sparse(samples);
      p.var.set_grad_shape({p.touched->capacity(), p.var.dim(1)});
      found = true;
    }
    check_setting(found, "optimizer.sparse", "names '{}', which no table is called{}", pattern,
                  spelling_hint(pattern, tables));
  }
}

bool any_sparse(const Parameters& parameters) {
  return std::ranges::any_of(parameters.list, [](const Parameter& p) { return p.sparse(); });
}

void touch(Parameters& parameters, const Inputs& batch) {
  for (Parameter& p : parameters.list)
    if (p.sparse()) p.touched->touch(batch);
}

}  // namespace elinvar
