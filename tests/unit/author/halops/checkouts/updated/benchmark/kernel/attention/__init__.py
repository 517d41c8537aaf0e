from kernel.attention import scenarios
