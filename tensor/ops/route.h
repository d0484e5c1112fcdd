#pragma once
// The router of a mixture of experts: which experts each token chooses, with which weights, and in which order each
// expert serves those that chose it (NUMERICS.md, rule 30). x are the E logits of a token, and k experts are chosen.
//
//   choices    the k largest logits, largest first; of equals, and of zeros of different sign, the lower index comes
//              first; a NaN comes after every number
//   weights    k > 1: m = x of the first choice, e = exp(x - m) of the choices, l = their sum from +0 in their order,
//              r = 1 / l, w = e * r (Mixtral: the softmax over all experts, divided by its sum over the choices)
//              k = 1: m likewise, l = sum of exp(x - m) over all experts by rule 11, w = exp(x - m) * (1 / l) (Switch)
//              A token with a NaN or +inf among its logits, or with -inf alone, has NaN for all weights.
//   service    choice j of token t, of n tokens, has number j n + t. An expert serves choices in ascending order: first
//              choices of all tokens by position, then second choices, and so on.
//
// The gradient of logits comes from dw, the gradient of weights, and from RouterLosses. c is the number of choices of
// each expert; m, l and r are those of k = 1, and p = exp(x - m) * r:
//   k = 1 or with losses: g = c * balance, for k = 1 with dw added at the choice;
//                         dx = fma(z * (m + log(l)), p, p * (g - dot(p, g))), with the dot product by rule 11
//   k > 1:                s = sum of w * dw from +0 in the order of choices (fma); w * (dw - s) is added to dx, or to
//   +0
//                         without losses, at the choices
#include "tensor/fields.h"
#include "tensor/numerics.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

inline constexpr int64_t kMostExperts = kRowSegment;

// Whether a router that sees logits a of expert i and b of expert j chooses i before j.
template <class T>
constexpr bool chosen_before(T a, int64_t i, T b, int64_t j) {
  if (a != a || b != b) return a == a || (b != b && i < j);
  return b < a || (a == b && i < j);
}

struct RouteArgs {
  In logits;                     // (tokens, experts)
  Out weight, expert, position;  // (chosen, tokens); expert and position are int64
  Out order, start;              // (chosen * tokens) and (experts + 1), int64
  int64_t tokens, experts, chosen;
};
void route(CpuStream&, const RouteArgs&);
template <class B>
void route(GpuStream<B>&, const RouteArgs&);

struct RouteBackwardArgs {
  In dweight, logits, weight, expert, start;
  Out dlogits;
  int64_t tokens, experts, chosen;
  double balance, z;  // factors of the losses' gradients, as above
};
void route_backward(CpuStream&, const RouteBackwardArgs&);
template <class B>
void route_backward(GpuStream<B>&, const RouteBackwardArgs&);

// Choice j of token t is element (j, t) of a (k, tokens) tensor, and has the number j * tokens + t.
struct Routes {
  Tensor weight;    // (k, tokens), like the logits
  Tensor expert;    // (k, tokens) int64: which expert is chosen
  Tensor position;  // (k, tokens) int64: how many choices this expert serves before
  Tensor order;     // (k * tokens) int64: numbers of choices, sorted by expert, in the order of service
  Tensor start;     // (experts + 1) int64: expert i serves order[start[i]] .. order[start[i + 1] - 1]
  ELINVAR_FIELDS(weight, expert, position, order, start)
};

// logits (tokens, experts) float32 or float64, with 1 <= k <= experts.
Routes route(const Tensor& logits, int64_t k);

// Losses of a router that are added to the sum of the losses of n tokens:
//   balance_weight * n * E * sum over experts of f * P, where f = c / (k n) is the share of choices, a constant, and P
//     the mean of p over the tokens: 1 if choices are balanced (Switch)
//   z_weight * sum over tokens of (m + log(l))^2 (ST-MoE)
// So balance = balance_weight * E / (k n) and z = 2 * z_weight, computed in float64 and rounded once.
struct RouterLosses {
  double balance_weight = 0, z_weight = 0;
  ELINVAR_FIELDS(balance_weight, z_weight)
};

// dweight (k, tokens), the logits, and parts of their routes -> like the logits
Tensor route_backward(const Tensor& dweight, const Tensor& logits, const Tensor& weight, const Tensor& expert,
                      const Tensor& start, const RouterLosses& losses);

}  // namespace elinvar
