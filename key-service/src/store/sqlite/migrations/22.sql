-- Deposits keep the id of their payment. Earlier deposits have none.
ALTER TABLE deposits ADD COLUMN payment_id TEXT;
