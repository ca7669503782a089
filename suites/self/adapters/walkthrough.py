# The decode layer of the walkthrough, in its order of random numbers: what its shapes and state norms really are.
# Prints the shapes of the weights and the Frobenius norm of the state after each of three steps.
import numpy as np

hidden, key_heads, value_heads, K, V, width = 2048, 16, 32, 128, 128, 4
channels = 2 * key_heads * K + value_heads * V
np.random.seed(0)


def weight(*shape):
    return np.random.randn(*shape).astype(np.float32) * 0.02


W_qkv, W_z, W_a, W_b = weight(hidden, channels), weight(hidden, value_heads * V), weight(hidden, value_heads), weight(hidden, value_heads)
W_conv, A_log, dt_bias, W_out = weight(channels, width), weight(value_heads), weight(value_heads), weight(value_heads * V, hidden)
print("qkv", W_qkv.shape, "z", W_z.shape, "a", W_a.shape, "b", W_b.shape, "conv", W_conv.shape, "A_log", A_log.shape)

S = np.zeros((value_heads, K, V), np.float32)
history = np.zeros((channels, width), np.float32)
for step in range(3):
    x = np.random.randn(1, 1, hidden).astype(np.float32)[0, 0]
    x = x / np.sqrt((x * x).mean() + 1e-6)
    history = np.concatenate([history[:, 1:], (x @ W_qkv)[:, None]], axis=1)
    mixed = (history * W_conv).sum(axis=1)
    mixed = mixed / (1 + np.exp(-mixed))
    _, k, v = np.split(mixed, [key_heads * K, 2 * key_heads * K])
    k, v = np.repeat(k.reshape(key_heads, K), value_heads // key_heads, axis=0), v.reshape(value_heads, V)
    alpha = np.exp(-np.exp(A_log) * np.log1p(np.exp(x @ W_a + dt_bias)))
    beta = 1 / (1 + np.exp(-(x @ W_b)))
    S *= alpha[:, None, None]
    S += beta[:, None, None] * k[:, :, None] * (v - np.einsum("hk,hkv->hv", k, S))[:, None, :]
    print("state norm %.3f" % np.linalg.norm(S))
