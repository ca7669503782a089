"""For adapters of Triton kernels, which take minutes a shape where Triton times every configuration."""


def one_configuration():
    """From now on every autotuned kernel runs the first configuration that its package lists."""
    from triton.runtime.autotuner import Autotuner
    run = Autotuner.run

    def first(self, *args, **kwargs):
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    Autotuner.run = first
