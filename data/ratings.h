#pragma once
// Which items users chose: `kind = "ratings"`, from MovieLens' files.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

// Files are ratings.csv, whose first line names the columns userId, movieId, rating and timestamp; u.data, with these
// columns between tabs; and ratings.dat, with them between "::". Other names count by their ends. A row whose rating is
// at least data.rating_min is a choice; texts of users and items are numbered in their sorted order.
//
// Each user's latest choice (of equal times the last row) is for validation and test, unless it is the only one, and
// all others are for training. With data.validation_fraction, validation has this share of the training choices
// instead, by a fixed permutation.
//
// A sample is a choice among items that the user never chose, in any split: inputs (1 + C, 2) int32, rows of a user and
// an item, of which the first is the choice; targets (1 + C) float32, 1 for the first and 0 for the others. In training
// C is data.negatives, and the other items are drawn anew in each epoch, independently. In other splits C is
// data.candidates, and the other items are fixed and distinct.
std::unique_ptr<Dataset> open_ratings(const DataConfig& config, Split split);

}  // namespace elinvar
