"""Networks for texts in PyTorch: of our own, or those of transformers without the dropout that models/ does not have."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Mixture(nn.Module):
    """Experts in place of a perceptron: choices, capacity, order of service and loss are those of the setting `experts`
    of a `gpt`. `loss` is that of the last forward pass."""

    def __init__(self, channels, experts=8, chosen=2, factor=1.25, weight=0.01):
        super().__init__()
        self.gate = nn.Linear(channels, experts, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(experts, channels, 4 * channels))
        self.down = nn.Parameter(0.02 * torch.randn(experts, 4 * channels, channels))
        self.experts, self.chosen, self.factor, self.weight, self.loss = experts, chosen, factor, weight, None

    def forward(self, x):
        tokens = x.flatten(0, 1)
        n, channels = tokens.shape
        logits = self.gate(tokens).float()
        best, chosen = logits.topk(self.chosen)
        weights, expert = best.softmax(-1).T.flatten(), chosen.T.flatten()  # first choices first
        of_expert = F.one_hot(expert, self.experts)
        position = (of_expert.cumsum(0) * of_expert).sum(1) - 1
        capacity = math.ceil(self.factor * self.chosen * n / self.experts)
        kept = (position < capacity).nonzero()[:, 0]
        row, token = (expert * capacity + position)[kept], kept % n
        rows = tokens.new_zeros(self.experts * capacity, channels).index_copy(0, row, tokens[token])
        hidden = F.gelu(torch.bmm(rows.view(self.experts, capacity, channels), self.up), approximate="tanh")
        made = torch.bmm(hidden, self.down).flatten(0, 1)
        y = torch.zeros_like(tokens).index_add(0, token, (made[row] * weights[kept, None]).to(tokens.dtype))
        self.loss = self.weight * self.experts * (of_expert.float().mean(0) * logits.softmax(-1).mean(0)).sum()
        return y.view_as(x)


class Decoder(nn.Module):
    """A pre-norm block of GPT-2."""

    def __init__(self, channels, heads, experts=False):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        if experts:
            self.mixture = Mixture(channels)
        else:
            self.mixture = None
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        if self.mixture is not None:
            return x + self.mixture(self.norm2(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers=12, heads=12, channels=768, vocabulary=50257, context=256, experts=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(Decoder(channels, heads, experts) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    def router_loss(self):
        return sum(block.mixture.loss for block in self.blocks if block.mixture is not None)


class Lstm(nn.Module):
    def __init__(self, layers=2, width=512, vocabulary=256):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


class Encoder(nn.Module):
    """A post-norm block of BERT."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels, eps=1e-12), nn.LayerNorm(channels, eps=1e-12)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        drop = lambda y: F.dropout(y, 0.1, self.training)
        x = self.norm1(x + drop(self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))))
        return self.norm2(x + drop(self.down(F.gelu(self.up(x)))))


class Electra(nn.Module):
    """ELECTRA's small generator and discriminator; gives its loss."""

    def __init__(self, layers=12, channels=256, heads=4, embedding=128, vocabulary=30522, context=512):
        super().__init__()
        small = channels // 4
        self.tokens, self.positions = nn.Embedding(vocabulary, embedding), nn.Embedding(context, embedding)
        self.types, self.norm = nn.Embedding(2, embedding), nn.LayerNorm(embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        blocks = lambda width, heads: [nn.Linear(embedding, width), *(Encoder(width, heads) for _ in range(layers))]
        self.generator = nn.Sequential(*blocks(small, heads // 4), nn.Linear(small, embedding), nn.GELU(),
                                       nn.LayerNorm(embedding))
        self.discriminator = nn.Sequential(*blocks(channels, heads), nn.Linear(channels, channels), nn.GELU(),
                                           nn.Linear(channels, 1))

    def embed(self, tokens):
        x = self.tokens(tokens) + self.types.weight[0] + self.positions.weight[:tokens.shape[1]]
        return F.dropout(self.norm(x), 0.1, self.training)

    def forward(self, tokens, targets):
        chosen = targets >= 0
        logits = F.linear(self.generator(self.embed(tokens)), self.tokens.weight, self.bias)
        with torch.no_grad():
            rows = logits[chosen].float()
            seen = tokens.clone()
            seen[chosen] = torch.argmax(rows - torch.log(-torch.log(torch.rand_like(rows))), 1)
        found = self.discriminator(self.embed(seen))[..., 0]
        replaced = (chosen & (seen != targets)).float()
        restored = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        errors = F.binary_cross_entropy_with_logits(found.float(), replaced, reduction="sum")
        return (restored + 7.5 * errors) / chosen.sum()


class Bert(nn.Module):
    """BERT's base, with a head for masked tokens, or with one for two classes of a text; gives its loss."""

    def __init__(self, pooled):
        super().__init__()
        import transformers
        config = transformers.BertConfig(attention_probs_dropout_prob=0.0, num_labels=2)
        self.bert = (transformers.BertForSequenceClassification if pooled else transformers.BertForMaskedLM)(config)

    def forward(self, tokens, mask, targets):
        return self.bert(input_ids=tokens, attention_mask=mask, labels=targets).loss


class T5(nn.Module):
    """The small T5; gives its loss."""

    def __init__(self):
        super().__init__()
        import transformers
        self.t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(decoder_start_token_id=0))
        for name, module in self.t5.named_modules():
            if name.endswith("Attention"):
                module.dropout = 0.0
            elif name.endswith("DenseReluDense"):
                module.dropout.p = 0.0

    def forward(self, sources, mask, inputs, targets):
        return self.t5(input_ids=sources, attention_mask=mask, decoder_input_ids=inputs, labels=targets).loss
